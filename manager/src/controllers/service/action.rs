//! What a Service needs of this controller.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::spec::names::FINALIZER;

/// What is to be done for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// It is none of ours.
    Nothing,
    /// It wants a load balancer.
    Ensure,
    /// What it has is to be deleted, then it is to be let go.
    CleanUp,
}

/// When to look at a Service again, if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Not by itself.
    OnChange,
    /// After this time.
    After(Duration),
}

/// Whether a Service wants a load balancer of this controller: any class, even a familiar one, is someone else's.
fn wants(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

/// Whether the finalizer is there.
#[must_use]
pub fn has_finalizer(service: &Service) -> bool {
    service
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// Whether a class says that the load balancer is another controller's.
#[must_use]
pub fn has_class(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.load_balancer_class.is_some())
}

/// What is to be done.
#[must_use]
pub fn work(service: &Service) -> Work {
    let deleting = service.metadata.deletion_timestamp.is_some();
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    if has_finalizer(service) && (deleting || kind != Some("LoadBalancer")) {
        return Work::CleanUp;
    }
    if wants(service) && !deleting {
        Work::Ensure
    } else {
        Work::Nothing
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, class: Option<&str>, finalizer: bool, deleting: bool) -> Work {
        let finalizers: &[&str] = if finalizer { &[FINALIZER] } else { &[] };
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        work(
            &serde_json::from_value(json!({
                "metadata": {"finalizers": finalizers, "deletionTimestamp": deleted},
                "spec": {"type": kind, "loadBalancerClass": class},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn type_class_finalizer_and_deletion_decide() {
        assert_eq!(of("LoadBalancer", None, false, false), Work::Ensure);
        assert_eq!(of("LoadBalancer", None, true, false), Work::Ensure);
        assert_eq!(of("LoadBalancer", Some("x"), false, false), Work::Nothing);
        assert_eq!(of("LoadBalancer", Some("x"), true, false), Work::Nothing);
        assert_eq!(of("LoadBalancer", None, true, true), Work::CleanUp);
        assert_eq!(of("LoadBalancer", None, false, true), Work::Nothing);
        assert_eq!(of("ClusterIP", None, true, false), Work::CleanUp);
        assert_eq!(of("ClusterIP", None, false, false), Work::Nothing);
        assert_eq!(of("LoadBalancer", Some("x"), true, true), Work::CleanUp);
    }
}
