//! The cloud node controller: gives a new Node its provider ID, labels and addresses and takes its uninitialized
//! taint off; keeps addresses true afterwards; completes Nodes that never had the taint; keeps old and new topology
//! labels equal; labels Nodes with their place in EC2's network.
//!
//! ```text
//! node cache ─names of new Nodes───▶ initialize: observe ─▶ desired ─▶ plan ─▶ apply      lane Initialize
//!            ─every period, all────▶ refresh:    observe ─▶ addresses, complete ─▶ apply  lane Refresh
//!            ─names without layers─▶ topology:   observe ─▶ plan ─▶ apply                 lane Background
//! ```
//!
//! The three flows share the cache and the store of instances, and nothing else: whatever the others do, a new Node
//! does not wait for it.

mod apply;
pub mod desired;
mod error;
pub mod host;
mod initialize;
mod log_summary;
mod observe;
pub mod plan;
mod refresh;
mod retry;
pub mod topology;

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::Ec2;
use outrigger_leader::Permit;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;
use desired::Place;
pub use error::{Error, Waiting};
use observe::ZoneIds;

/// Source of this controller's Events.
pub const EVENT_COMPONENT: &str = "cloud-node-controller";

/// What the controller works with.
#[derive(Clone)]
pub struct Deps {
    /// Client for writes.
    pub client: kube::Client,
    /// The Nodes; filled by someone else.
    pub nodes: NodeCache,
    /// What is known about instances.
    pub instances: Instances,
    /// EC2, for zones and the network's topology.
    pub ec2: Arc<dyn Ec2>,
    /// Region and address families.
    pub place: Place,
    /// The instance types of which EC2 tells their place in the network.
    pub topology: topology::Pattern,
    /// Nodes initialized at the same time, at least 1.
    pub initializations: usize,
    /// Nodes refreshed or completed at the same time, at least 1.
    pub refreshes: usize,
    /// From the start of one refresh of all Nodes to the next.
    pub refresh_period: Duration,
    /// How long new Nodes are collected before one describe asks for all of them.
    pub window: Duration,
    /// Whether no kubelet writes addresses any more (true outside of a migration, and once it is complete).
    pub kubelets_external: watch::Receiver<bool>,
    /// Metrics.
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`].
    pub events: Recorder,
    /// The right to write.
    pub permit: Permit,
}

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    let zone_ids = ZoneIds::default();
    // Whichever flow ends first takes the others with it, and all are waited for.
    let all = stop.child_token();
    let (initialized, refreshed, labelled) = tokio::join!(
        async { stop_after(Box::pin(initialize::run(&deps, &zone_ids, &all)).await, &all) },
        async { stop_after(Box::pin(refresh::run(&deps, &zone_ids, &all)).await, &all) },
        async { stop_after(Box::pin(topology::run(&deps, &all)).await, &all) },
    );
    initialized.and(refreshed).and(labelled)
}

fn stop_after<T>(result: T, stop: &CancellationToken) -> T {
    stop.cancel();
    result
}
