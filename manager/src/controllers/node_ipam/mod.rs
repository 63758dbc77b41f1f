//! The node IPAM controller: gives each Node ranges for its Pods out of the cluster's, one of each family, as
//! kube-controller-manager's range allocator does.
//!
//! ```text
//! full list ───────────────▶ ledger (pure) ─ranges─▶ patch of spec.podCIDRs
//! node cache ─names─▶ plan ─▶   ▲                       │ whatever comes out, the range stays this Node's
//!                               └──────── seen ─────────┘
//! ```
//!
//! The ledger starts from a full list that is read after the lease was gained, before anything is given: a cache may
//! be behind what the last holder wrote. What may be given to whom is decided in [`ledger`]; ranges once set cannot be
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
use allocator::Ledger;
use cidr_set::Slots;
pub use deps::{ClusterRange, Deps};
pub use error::Error;
pub use metrics::IpamMetrics;
use worker::Work;

/// Source of this controller's Events; kube-controller-manager's is the same.
pub const EVENT_COMPONENT: &str = "cidrAllocator";

/// Pause before a further full list, where one is needed.
const LIST_AGAIN: Duration = Duration::from_secs(60);
/// Pause after a first full list that failed; doubles up to [`LIST_AGAIN`].
const LIST_RETRY: Duration = Duration::from_secs(1);
/// How long one full list may take.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    let mut work = Work::new(deps.clone(), ledger(&deps)?);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = first_list(&mut work, &deps) => {}
    }
    let result = until_stopped(&mut work, &deps, &stop).await;
    work.finish().await;
    result
}

fn ledger(deps: &Deps) -> Result<Ledger, Error> {
    let mut sets = Vec::new();
    for range in &deps.ranges {
        let slots = Slots::new(range.cluster, range.node_prefix);
        sets.push(slots.ok_or(Error::Ranges(range.cluster, range.node_prefix))?);
    }
    Ok(Ledger::new(sets, &deps.excluded))
}

/// Nothing is given before this is through.
async fn first_list(work: &mut Work, deps: &Deps) {
    let mut pause = LIST_RETRY;
    while !list(work, deps).await {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LIST_AGAIN);
    }
    tracing::info!("the ranges in use are read");
}

/// Reads all Nodes; whether it went well.
async fn list(work: &mut Work, deps: &Deps) -> bool {
    let list = work.begin_list();
    match tokio::time::timeout(LIST_LIMIT, observe::all_nodes(&deps.client)).await {
        Ok(Ok(nodes)) => {
            work.end_list(list, &nodes);
            true
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the Nodes could not be listed; it is tried again");
            false
        }
        Err(_) => {
            tracing::warn!(limit = ?LIST_LIMIT, "the API server did not list the Nodes in time; it is tried again");
            false
        }
    }
}

async fn until_stopped(work: &mut Work, deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let changes = deps.nodes.subscribe_where(matters);
    let mut again = tokio::time::interval_at(Instant::now() + LIST_AGAIN, LIST_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        work.start_writes();
        let (due, needs_list) = (work.next_due(), work.needs_list());
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => work.look(&changes.take()),
            Some(done) = work.next_written() => work.settle(done)?,
            () = sleep_until(due) => work.retry(),
            _ = again.tick(), if needs_list => {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    _ = list(work, deps) => {}
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
