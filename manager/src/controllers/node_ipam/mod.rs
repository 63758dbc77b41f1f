//! The node IPAM controller. It assigns CIDRs for Pods to each Node, one of each family, as the range allocator of
//! kube-controller-manager does.
//!
//! ```text
//! full list ───────────────▶ allocator (pure) ─ranges─▶ patch of spec.podCIDRs
//! node cache ─names─▶ plan ─▶   ▲                          │ in any case the CIDR stays allocated to the Node
//!                               └─────── observe ──────────┘
//! ```
//!
//! The allocator starts from a full list, read after the lease was acquired and before the first allocation: the cache may
//! lag behind the writes of the last holder. The API server rejects changes of CIDRs, so a Node with wrong CIDRs is
//! reported and stays unchanged.

pub mod allocator;
pub mod cidr_set;
mod metrics;
mod observe;
mod worker;

use std::time::Duration;

use ipnet::IpNet;
use outrigger_leader::Permit;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::backoff::sleep_until;
use crate::events::Recorder;
use crate::node_cache::{NodeCache, NodeView};
use allocator::Allocator;
use cidr_set::CidrSet;
pub use metrics::IpamMetrics;
pub use worker::Error;
use worker::Worker;

/// Source of this controller's Events; kube-controller-manager's is the same.
pub const EVENT_COMPONENT: &str = "cidrAllocator";

/// Time between full lists, while they are needed.
const LIST_PERIOD: Duration = Duration::from_secs(60);
/// First backoff after the first full list failed; doubles up to [`LIST_PERIOD`].
const LIST_RETRY: Duration = Duration::from_secs(1);
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    pub cluster: IpNet,
    pub node_prefix: u8,
}

#[derive(Clone)]
pub struct Deps {
    /// Client for the list and for writes.
    pub client: kube::Client,
    pub nodes: NodeCache,
    /// The cluster CIDRs, at most one of each family.
    pub ranges: Vec<ClusterRange>,
    /// CIDRs that are never allocated: those of Services.
    pub excluded: Vec<IpNet>,
    pub metrics: IpamMetrics,
    /// Events, of component [`EVENT_COMPONENT`].
    pub events: Recorder,
    pub permit: Permit,
}

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    let mut worker = Worker::new(deps.clone(), allocator(&deps)?);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = first_list(&mut worker, &deps) => {}
    }

    let result = until_stopped(&mut worker, &deps, &stop).await;
    // The next leader reads the results of these writes with a full list.
    while worker.in_flight.join_next().await.is_some() {}

    result
}

fn allocator(deps: &Deps) -> Result<Allocator, Error> {
    let mut sets = Vec::new();
    for range in &deps.ranges {
        let cidr_set = CidrSet::new(range.cluster, range.node_prefix);
        sets.push(cidr_set.ok_or(Error::Ranges(range.cluster, range.node_prefix))?);
    }
    Ok(Allocator::new(sets, &deps.excluded))
}

async fn first_list(worker: &mut Worker, deps: &Deps) {
    let mut backoff = LIST_RETRY;
    while !list(worker, deps).await {
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LIST_PERIOD);
    }
    tracing::info!("read the CIDRs in use");
}

/// Lists all Nodes; returns whether it succeeded.
async fn list(worker: &mut Worker, deps: &Deps) -> bool {
    let list = worker.allocator.begin_list();
    match tokio::time::timeout(LIST_TIMEOUT, observe::all_nodes(&deps.client)).await {
        Ok(Ok(nodes)) => {
            worker.end_list(list, &nodes);
            true
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to list the Nodes; retrying");
            false
        }
        Err(_) => {
            tracing::warn!(limit = ?LIST_TIMEOUT, "timed out listing the Nodes; retrying");
            false
        }
    }
}

async fn until_stopped(worker: &mut Worker, deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let changes = deps.nodes.subscribe_where(matters);
    let mut again = tokio::time::interval_at(Instant::now() + LIST_PERIOD, LIST_PERIOD);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        worker.start_writes();

        let (due, needs_list) = (worker.backoff.next_due(Instant::now()), worker.allocator.needs_list());
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => worker.reconcile(&changes.take()),
            Some(done) = worker.in_flight.join_next() => worker.settle(done)?,
            () = sleep_until(due) => worker.retry(),
            _ = again.tick(), if needs_list => {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    _ = list(worker, deps) => {}
                }
            }
        }
    }
}

/// Whether a change affects allocations: existence, CIDRs, or the begin of the deletion.
fn matters(was: Option<&NodeView>, is: Option<&NodeView>) -> bool {
    let (Some(was), Some(is)) = (was, is) else {
        return true;
    };
    let is_deleting = |node: &NodeView| node.metadata.deletion_timestamp.is_some();
    was.uid() != is.uid() || was.spec.pod_cidrs != is.spec.pod_cidrs || is_deleting(was) != is_deleting(is)
}
