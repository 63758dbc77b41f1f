//! The node IPAM controller: gives each Node ranges for its Pods out of the cluster's, one of each family, as
//! kube-controller-manager's range allocator does.
//!
//! ```text
//! full list ───────────────▶ allocator (pure) ─ranges─▶ patch of spec.podCIDRs
//! node cache ─names─▶ plan ─▶   ▲                       │ whatever comes out, the range stays this Node's
//!                               └──────── seen ─────────┘
//! ```
//!
//! The allocator starts from a full list that is read after the lease was gained, before anything is given: a cache may
//! be behind what the last holder wrote. What may be given to whom is decided in [`allocator`]; ranges once set cannot be
//! changed, so a Node with wrong ones is reported and left alone.

pub mod allocator;
mod apply;
pub mod cidr_set;
mod deps;
mod error;
mod metrics;
mod observe;
mod worker;

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::backoff::sleep_until;
use crate::node_cache::NodeView;
use allocator::Allocator;
use cidr_set::CidrSet;
pub use deps::{ClusterRange, Deps};
pub use error::Error;
pub use metrics::IpamMetrics;
use worker::Worker;

/// Source of this controller's Events; kube-controller-manager's is the same.
pub const EVENT_COMPONENT: &str = "cidrAllocator";

/// Pause before a further full list, where one is needed.
const LIST_PERIOD: Duration = Duration::from_secs(60);
/// Pause after a first full list that failed; doubles up to [`LIST_PERIOD`].
const LIST_RETRY: Duration = Duration::from_secs(1);
/// How long one full list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

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
    worker.finish().await;
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

/// Nothing is given before this is through.
async fn first_list(worker: &mut Worker, deps: &Deps) {
    let mut pause = LIST_RETRY;
    while !list(worker, deps).await {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LIST_PERIOD);
    }
    tracing::info!("the ranges in use are read");
}

/// Reads all Nodes; whether it went well.
async fn list(worker: &mut Worker, deps: &Deps) -> bool {
    let list = worker.begin_list();
    match tokio::time::timeout(LIST_TIMEOUT, observe::all_nodes(&deps.client)).await {
        Ok(Ok(nodes)) => {
            worker.end_list(list, &nodes);
            true
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the Nodes could not be listed; it is tried again");
            false
        }
        Err(_) => {
            tracing::warn!(limit = ?LIST_TIMEOUT, "the API server did not list the Nodes in time; it is tried again");
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
        let (due, needs_list) = (worker.next_due(), worker.needs_list());
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => worker.reconcile(&changes.take()),
            Some(done) = worker.next_written() => worker.settle(done)?,
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

/// Who is there, with which ranges, and who is going.
fn matters(was: Option<&NodeView>, is: Option<&NodeView>) -> bool {
    let (Some(was), Some(is)) = (was, is) else {
        return true;
    };
    let going = |node: &NodeView| node.metadata.deletion_timestamp.is_some();
    was.uid() != is.uid() || was.spec.pod_cidrs != is.spec.pod_cidrs || going(was) != going(is)
}
