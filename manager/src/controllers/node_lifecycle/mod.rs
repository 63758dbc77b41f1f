//! The cloud node lifecycle controller. It deletes a Node whose instance is terminated or does not exist. A Node whose
//! instance is stopped has the shutdown taint until it is Ready again.
//!
//! Each pass describes the instances of all Nodes that are not Ready, with one batch; [`plan`] decides. A Fargate Node is
//! deleted when its network interface has been absent for a minute. It cannot be stopped, so it never gets the taint.

mod apply;
mod dry_run;
mod observe;
pub mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use outrigger_leader::Permit;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::args::DeletionBreaker;
use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;
pub use apply::Error;
pub use dry_run::dry_run;
use observe::Failures;
use plan::History;

pub const EVENT_COMPONENT: &str = "cloud-node-lifecycle-controller";

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub instances: Instances,
    /// The interval between the starts of two passes.
    pub monitor_period: Duration,
    pub breaker: DeletionBreaker,
    pub metrics: Metrics,
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

    let mut state = State::default();
    let mut ticks = tokio::time::interval(deps.monitor_period.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let started = Instant::now();
        pass(&deps, &mut state, &stop).await?;
        deps.metrics.lifecycle.pass.observe(started.elapsed().as_secs_f64());
    }
}

#[derive(Debug, Default)]
struct State {
    history: History,
    /// UIDs of the Nodes whose deletion was announced: one Event for each, however often the deletion fails.
    announced: BTreeSet<String>,
    failures: Failures,
}

async fn pass(deps: &Deps, state: &mut State, stop: &CancellationToken) -> Result<(), Error> {
    let observed = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        observed = observe::nodes(deps, &state.history, &mut state.failures) => observed,
    };
    let plan = plan::plan(&observed, &mut state.history, &deps.breaker, Instant::now());
    deps.metrics
        .lifecycle
        .deletion_breaker_open
        .set(i64::from(state.history.is_open()));

    if let Some(opened) = plan.opened {
        apply::report_breaker(deps, opened, observed.len());
    }

    for action in &plan.actions {
        if stop.is_cancelled() {
            return Ok(());
        }
        apply::apply(deps, action, &mut state.history, &mut state.announced).await?;
    }

    state
        .announced
        .retain(|uid| observed.iter().any(|seen| seen.node.uid() == uid));

    Ok(())
}
