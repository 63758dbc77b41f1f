//! A change every 2 s that means nothing to AWS: it makes whoever owns a controller look, so that an idle owner shows.
//!
//! The service controllers of Kubernetes sync a Service when any annotation of it changes, and ours when this one does. Then they
//! read its load balancer.

mod ports;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinHandle;

use outrigger_cluster_harness::kubelets::{KubeletError, client_with};

pub(crate) use ports::PortChanges;

/// The user agent of the load, which no controller has.
pub const USER_AGENT: &str = "e2e-load";

/// The annotation that changes; its value counts.
pub const ANNOTATION: &str = "outrigger.dev/reconcile";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTarget {
    /// Of the Service.
    pub namespace: String,
    pub service: String,
    pub node: String,
}

/// The running load. Dropping it stops it.
#[derive(Debug)]
pub struct Load {
    changes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Load {
    /// Changes the Service and the Node at once, and then every `every`.
    ///
    /// # Errors
    /// When no client can be made from `cluster`.
    pub fn start(cluster: &kube::Config, target: LoadTarget, every: Duration) -> Result<Self, KubeletError> {
        let client = client_with(cluster, vec![(http::header::USER_AGENT, USER_AGENT.into())])?;
        let services = Api::<Service>::namespaced(client.clone(), &target.namespace);
        let nodes = Api::<Node>::all(client);
        let changes = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(run(services, nodes, target, every, Arc::clone(&changes)));
        Ok(Self { changes, task })
    }

    /// How often both were changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(services: Api<Service>, nodes: Api<Node>, target: LoadTarget, every: Duration, changes: Arc<AtomicU64>) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 1_u64.. {
        ticks.tick().await;

        let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: count.to_string()}}}));
        let parameters = PatchParams::default();
        let service = services.patch_metadata(&target.service, &parameters, &patch).await;
        let node = nodes.patch_metadata(&target.node, &parameters, &patch).await;

        match service.and(node) {
            Ok(_) => _ = changes.fetch_add(1, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, ?target, "the load could not change its objects"),
        }
    }
}
