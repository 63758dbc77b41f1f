//! What a Service needs of this controller.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::spec::names::FINALIZER;

/// What is to be done for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceAction {
    /// It is none of ours.
    Ignore,
    /// It wants a load balancer.
    Ensure,
    /// What it has is to be deleted, then it is to be let go.
    Delete,
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
pub fn action(service: &Service) -> ServiceAction {
    let deleting = service.metadata.deletion_timestamp.is_some();
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    if has_finalizer(service) && (deleting || kind != Some("LoadBalancer")) {
        return ServiceAction::Delete;
    }
    if wants(service) && !deleting {
        ServiceAction::Ensure
    } else {
        ServiceAction::Ignore
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, class: Option<&str>, finalizer: bool, deleting: bool) -> ServiceAction {
        let finalizers: &[&str] = if finalizer { &[FINALIZER] } else { &[] };
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        action(
            &serde_json::from_value(json!({
                "metadata": {"finalizers": finalizers, "deletionTimestamp": deleted},
                "spec": {"type": kind, "loadBalancerClass": class},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn type_class_finalizer_and_deletion_decide() {
        assert_eq!(of("LoadBalancer", None, false, false), ServiceAction::Ensure);
        assert_eq!(of("LoadBalancer", None, true, false), ServiceAction::Ensure);
        assert_eq!(of("LoadBalancer", Some("x"), false, false), ServiceAction::Ignore);
        assert_eq!(of("LoadBalancer", Some("x"), true, false), ServiceAction::Ignore);
        assert_eq!(of("LoadBalancer", None, true, true), ServiceAction::Delete);
        assert_eq!(of("LoadBalancer", None, false, true), ServiceAction::Ignore);
        assert_eq!(of("ClusterIP", None, true, false), ServiceAction::Delete);
        assert_eq!(of("ClusterIP", None, false, false), ServiceAction::Ignore);
        assert_eq!(of("LoadBalancer", Some("x"), true, true), ServiceAction::Delete);
    }
}
