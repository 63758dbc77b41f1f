//! Decides whether a Service is ignored, ensured or deleted.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::spec::names::FINALIZER;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceAction {
    /// The Service is not managed.
    Ignore,
    Ensure,
    /// Delete the load balancer, then remove the finalizer.
    Delete,
}

/// When to reconcile a Service again without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    OnChange,
    After(Duration),
}

pub fn has_finalizer(service: &Service) -> bool {
    let mut finalizers = service.metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == FINALIZER)
}

/// A Service with any class belongs to another controller.
pub fn has_class(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.load_balancer_class.is_some())
}

pub fn action(service: &Service) -> ServiceAction {
    let deleting = service.metadata.deletion_timestamp.is_some();
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    let is_balancer = kind == Some("LoadBalancer");
    if has_finalizer(service) && (deleting || !is_balancer) {
        return ServiceAction::Delete;
    }

    if is_balancer && !has_class(service) && !deleting {
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
