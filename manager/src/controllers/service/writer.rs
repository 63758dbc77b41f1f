//! Writes to the API server.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use outrigger_leader::Permit;
use serde_json::{Value, json};

use super::error::Error;
use super::spec::names::{FINALIZER, namespaced};
use crate::api_write::write;
use crate::events::{About, EventType, Recorder};

const COMPONENT: &str = "service-controller";

/// The result of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The Service exists and is patched.
    There,
    Gone,
}

/// The writes to a Service; a trait for tests.
#[async_trait]
pub trait Writer: Send + Sync {
    /// Sends a strategic merge patch to the subresource `status`. A Service that is gone is no error: it needs no
    /// patch. `operation` is for the error message.
    async fn patch(&self, service: &Service, operation: &'static str, patch: Value) -> Result<Found, Error>;

    async fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str);
}

pub struct ApiWriter {
    client: Client,
    recorder: Recorder,
    permit: Permit,
}

impl ApiWriter {
    /// Writes while `permit` is valid.
    pub fn new(client: Client, permit: Permit) -> Self {
        Self {
            recorder: Recorder::new(client.clone(), COMPONENT),
            client,
            permit,
        }
    }
}

#[async_trait]
impl Writer for ApiWriter {
    async fn patch(&self, service: &Service, operation: &'static str, patch: Value) -> Result<Found, Error> {
        let (namespace, name) = namespaced(service);
        let api = Api::<Service>::namespaced(self.client.clone(), namespace);
        tracing::info!(namespace, name, operation, "writing to the API server");

        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        match write(&self.permit, api.patch_status(name, &parameters, &patch)).await? {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::Gone),
            result => result.map(|_| Found::There).map_err(Error::kubernetes(operation)),
        }
    }

    async fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str) {
        let metadata = &service.metadata;
        let about = About {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
        };

        self.recorder.record(&self.permit, &about, kind, reason, message);
    }
}

// Patches of Services. All patch the subresource `status`, also for the finalizer, as Kubernetes' service controller
// does: existing RBAC rules allow no more. The UID makes a patch fail on a newer Service of the same name.

/// Adds the finalizer after the others, as a strategic merge patch: those stay. Without the order it would come first.
pub fn add_finalizer(service: &Service) -> Value {
    let mut order = service.metadata.finalizers.clone().unwrap_or_default();
    order.push(FINALIZER.to_owned());
    json!({"metadata": {
        "uid": service.metadata.uid,
        "finalizers": [FINALIZER],
        "$setElementOrder/finalizers": order,
    }})
}

/// Removes the finalizer and the load balancer's address, so that no released Service still has the address.
pub fn release(service: &Service) -> Value {
    let mut patch = release_only(service);
    if !hostnames(service).is_empty() {
        patch["status"] = json!({"loadBalancer": {"ingress": null}});
    }
    patch
}

/// Removes the finalizer, and keeps the address of another controller.
pub fn release_only(service: &Service) -> Value {
    json!({
        "metadata": {"uid": service.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]},
    })
}

pub fn address(service: &Service, hostname: &str) -> Value {
    json!({
        "metadata": {"uid": service.metadata.uid},
        "status": {"loadBalancer": {"ingress": [{"hostname": hostname}]}},
    })
}

/// Whether the status has exactly this address.
pub fn has_address(service: &Service, hostname: &str) -> bool {
    hostnames(service) == [Some(hostname)]
}

/// The host names of the status, one for each address; `None` for one that has an IP instead.
fn hostnames(service: &Service) -> Vec<Option<&str>> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let addresses = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
    addresses.map(|address| address.hostname.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(ingress: Value) -> Service {
        let status = json!({"loadBalancer": {"ingress": ingress}});
        serde_json::from_value(json!({"metadata": {"uid": "u1"}, "status": status})).unwrap()
    }

    #[test]
    fn every_patch_is_bound_to_the_uid() {
        let service = service(json!([]));
        for patch in [add_finalizer(&service), release(&service), address(&service, "h")] {
            assert_eq!(patch["metadata"]["uid"], "u1");
        }
    }

    #[test]
    fn the_finalizer_comes_after_those_of_others() {
        let mut service = service(json!([]));
        service.metadata.finalizers = Some(vec!["b/b".into(), "a/a".into()]);
        let patch = add_finalizer(&service);
        assert_eq!(
            patch["metadata"]["$setElementOrder/finalizers"],
            json!(["b/b", "a/a", FINALIZER])
        );
        assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
    }

    #[test]
    fn a_release_clears_the_address_only_where_there_is_one() {
        assert!(release(&service(json!([]))).get("status").is_none());
        let cleared = release(&service(json!([{"ip": "192.0.2.1"}])));
        assert_eq!(cleared["status"], json!({"loadBalancer": {"ingress": null}}));
    }

    #[test]
    fn only_the_one_host_name_is_the_same_address() {
        assert!(has_address(&service(json!([{"hostname": "h"}])), "h"));
        for other in [
            json!([]),
            json!([{"hostname": "x"}]),
            json!([{"hostname": "h"}, {"ip": "192.0.2.1"}]),
        ] {
            assert!(!has_address(&service(other), "h"));
        }
    }
}
