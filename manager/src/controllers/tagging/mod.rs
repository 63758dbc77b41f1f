//! The tagging controller: instances of Nodes carry the tags of `--tags`, and their Nodes a label that says so.
//!
//! ```text
//! node cache ─names─▶ book (pure) ─batches─▶ CreateTags, DeleteTags ─▶ label ─▶ book
//!                        ▲
//!    every 10 s: do instances that EC2 did not know exist by now?   one describe for all
//!    every resync period: does each instance still have its tags?   one describe for all
//! ```
//!
//! A Node that goes takes the tags off its instance, unless another Node has it. An instance counts as tagged only when
//! AWS logged so. An instance without the cluster's tag is not tagged: it may belong to another cluster or owner. What EC2
//! does not know, or what lacks that tag, is told once and not tried again; what concerns all calls, such as a missing
//! permission or throttling, pauses all of them.

mod apply;
mod deps;
mod error;
pub mod label;
mod metrics;
pub mod queue;
mod worker;

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::backoff::sleep_until;
use crate::node_cache::NodeView;
pub use deps::Deps;
pub use error::Error;
pub use metrics::TaggingMetrics;
use worker::Worker;

/// Source of this controller's Events.
pub const EVENT_COMPONENT: &str = "tagging-controller";

/// Name of the queue in metrics `workqueue_*`, the incumbent's.
pub const QUEUE: &str = "tagging-controller";

/// How long calls of one batch are collected.
const WINDOW: Duration = Duration::from_millis(100);
/// How often EC2 is asked about instances that it did not know.
const MISSING: Duration = Duration::from_secs(10);

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    let mut worker = Worker::new(deps.clone());
    let result = until_stopped(&mut worker, &deps, &stop).await;
    worker.finish().await;
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
            Some(outcome) = worker.next_applied() => worker.settle(outcome)?,
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

/// Who is there, on which instance, with which label.
fn matters(was: Option<&NodeView>, is: Option<&NodeView>) -> bool {
    let (Some(was), Some(is)) = (was, is) else {
        return true;
    };
    was.uid() != is.uid() || was.provider_id() != is.provider_id() || was.label(label::LABEL) != is.label(label::LABEL)
}
