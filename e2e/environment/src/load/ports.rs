//! A change every few seconds that AWS must see: the port of a Service.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;

/// The ports follow each other from this one on.
const FIRST: u16 = 8100;
const COUNT: u16 = 400;

/// The running changes. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct PortChanges(JoinHandle<()>);

impl PortChanges {
    /// Changes the port of a Service in namespace `default` every `every`.
    pub(crate) fn start(client: Client, service: &str, every: Duration) -> Self {
        let services = Api::<Service>::namespaced(client, "default");
        Self(tokio::spawn(run(services, service.to_owned(), every)))
    }
}

impl Drop for PortChanges {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(services: Api<Service>, service: String, every: Duration) {
    for count in (0..COUNT).cycle() {
        tokio::time::sleep(every).await;
        let ports = json!([{"port": FIRST + count, "protocol": "TCP"}]);
        let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
        if let Err(error) = services.patch(&service, &PatchParams::default(), &patch).await {
            tracing::warn!(%error, service, "the port could not be changed");
        }
    }
}
