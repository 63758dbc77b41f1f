//! The tagging controller. It tags the instances of Nodes with `--tags`, and labels the Nodes.
//!
//! ```text
//! node cache ─names─▶ queue (pure) ─batches─▶ CreateTags, DeleteTags ─▶ label ─▶ queue
//!                        ▲
//!    every 10 s: do instances that EC2 did not know exist by now?   one describe for all
//!    every resync period: does each instance still have its tags?   one describe for all
//! ```
//!
//! When a Node is deleted, its instance loses the tags, unless another Node has the instance. An instance without the
//! cluster's tag is not tagged: it may belong to another cluster or owner. An instance that EC2 does not list, or that lacks
//! that tag, is logged once and not retried. A failure that concerns all calls, such as a missing permission or
//! throttling, delays all calls.

mod apply;
pub mod label;
mod metrics;
pub mod queue;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Tags};
use outrigger_leader::Permit;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::backoff::sleep_until;
use crate::events::Recorder;
use crate::instances::{Instances, claimed};
use crate::metrics::Metrics;
use crate::node_cache::{NodeCache, NodeView};
pub use metrics::TaggingMetrics;
pub use worker::Error;
use worker::Worker;

pub const EVENT_COMPONENT: &str = "tagging-controller";

/// Name of the queue in metrics `workqueue_*`, the incumbent's.
pub const QUEUE: &str = "tagging-controller";

/// How long changes are collected for a batch.
const WINDOW: Duration = Duration::from_millis(100);
/// Period of describes of instances that EC2 did not list.
const MISSING: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub ec2: Arc<dyn Ec2>,
    pub instances: Instances,
    pub tags: Tags,
    /// The label's value for these tags; see [`label::value`](super::label::value).
    pub label: String,
    /// Up to 50 instances with one call, instead of one.
    pub batching: bool,
    /// At least 1.
    pub calls_at_once: usize,
    /// Nodes taken up per second; counts only with a burst limit above 0.
    pub rate_limit: f64,
    /// Nodes taken up before the rate limit counts.
    pub burst_limit: u32,
    /// Time between two searches for lost tags; `None`: there are none.
    pub resync_period: Option<Duration>,
    pub metrics: Metrics,
    pub counts: TaggingMetrics,
    /// Events, of component [`EVENT_COMPONENT`].
    pub events: Recorder,
    pub permit: Permit,
}

/// Runs until `stop`, and returns only when no write is in flight.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and no longer permitted.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }

    let mut worker = Worker::new(deps.clone());
    let result = until_stopped(&mut worker, &deps, &stop).await;
    while worker.in_flight.join_next().await.is_some() {}

    result
}

async fn until_stopped(worker: &mut Worker, deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let changes = deps.nodes.subscribe_where(matters);
    let (mut missing, mut drift) = (every(MISSING), deps.resync_period.map(every));
    loop {
        let (due, awaits_any) = (worker.next_due(), worker.awaits_any());
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => {
                if deps.batching {
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = tokio::time::sleep(WINDOW) => {}
                    }
                }
                changes.take().iter().for_each(|name| worker.reconcile(name));
            }
            Some(outcome) = worker.in_flight.join_next() => worker.settle(outcome)?,
            () = sleep_until(due) => {}
            _ = missing.tick(), if awaits_any => {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = worker.check_missing() => {}
                }
            }
            period = tick(&mut drift) => {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = worker.repair_drift(period) => {}
                }
            }
        }

        worker.start_calls();
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick and returns the time between two; for ever where there is none.
async fn tick(ticks: &mut Option<Interval>) -> Duration {
    let Some(ticks) = ticks else {
        return std::future::pending().await;
    };
    ticks.tick().await;
    ticks.period()
}

/// Whether the instance of a Node, its label, or the existence of the Node changed.
fn matters(was: Option<&NodeView>, is: Option<&NodeView>) -> bool {
    let (Some(was), Some(is)) = (was, is) else {
        return true;
    };
    was.uid() != is.uid() || claimed(was) != claimed(is) || was.label(label::LABEL) != is.label(label::LABEL)
}
