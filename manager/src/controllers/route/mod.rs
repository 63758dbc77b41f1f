//! The route controller: a route of the VPC for each Node's Pod range.
//!
//! ```text
//! Nodes, tick ──▶ observe (one DescribeRouteTables) ──▶ plan (pure) ──▶ apply: routes, then NetworkUnavailable
//! ```
//!
//! It serves the route table that the cloud configuration names, or every table of the VPC with the cluster's tag, all
//! alike. IPv4 only. Where nothing changed nothing is written; which routes it may touch is told in [`plan`], and when
//! one may go in [`sightings`].

mod apply;
mod condition;
pub mod confirmation;
mod denials;
mod deps;
mod error;
mod failures;
mod node_changes;
mod observe;
pub mod plan;

use std::time::Duration;

use outrigger_aws::Kind;
use outrigger_leader::NotLeader;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::metrics::RouteSyncLabels;
use apply::{Memory, Outcome};
use confirmation::Sightings;
pub use deps::Deps;
pub use error::{Error, Unread};
use observe::Membership;

/// Source of this controller's Events: upstream's, with the underscore.
pub const EVENT_COMPONENT: &str = "route_controller";

/// What is kept from pass to pass.
#[derive(Default)]
struct State {
    membership: Membership,
    sightings: Sightings,
    memory: Memory,
    /// When to look again before the next tick.
    again: Option<Instant>,
}

/// Runs until `stop`, and returns only when no write is under way any more. Nothing is done before all Nodes are known.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    let mut state = State::default();
    let changed = node_changes::reader(&deps.nodes);
    let mut ticks = tokio::time::interval(deps.period.max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unread = false;
    loop {
        let again = state.again.unwrap_or_else(Instant::now);
        let trigger = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => "periodic",
            () = tokio::time::sleep_until(again), if state.again.is_some() => "periodic",
            // While AWS does not even tell the routes, changes wait for the tick.
            () = node_changes::gather(&changed), if !unread => "node_change",
        };
        let passed = pass(&deps, &mut state, &stop).await?;
        unread = passed.is_err();
        let outcome = match passed {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the routes are not known; nothing is changed"
                );
                if let Unread::Aws(error) = &error
                    && error.kind() == Kind::AccessDenied
                {
                    apply::report_denied(&deps, &state.memory, "", error);
                }
                Outcome {
                    changed: false,
                    failed: true,
                }
            }
        };
        count(&deps, outcome, trigger);
    }
}

/// One pass: observe, plan, apply.
async fn pass(deps: &Deps, state: &mut State, stop: &CancellationToken) -> Result<Result<Outcome, Unread>, NotLeader> {
    state.again = None;
    let observed = tokio::select! {
        () = stop.cancelled() => return Ok(Ok(Outcome::default())),
        observed = observe::observe(deps, &mut state.membership) => observed,
    };
    let observed = match observed {
        Ok(observed) => observed,
        Err(error) => return Ok(Err(error)),
    };
    let now = Instant::now();
    let plan = plan::plan(&observed, deps.cluster_cidr, &mut state.sightings, now);
    state.again = plan.again.map(|left| now + left);
    if plan.held > 0 && deps.metrics.routes.held.get() == 0 {
        tracing::warn!(
            routes = plan.held,
            "many routes look unwanted at once; they stay for a minute. Check that all Nodes are there"
        );
    }
    deps.metrics
        .routes
        .held
        .set(i64::try_from(plan.held).unwrap_or(i64::MAX));
    let outcome = apply::apply(deps, plan, &observed.members, &state.memory, stop).await?;
    Ok(Ok(outcome))
}

fn count(deps: &Deps, outcome: Outcome, trigger: &'static str) {
    let outcome = match outcome {
        Outcome { failed: true, .. } => "error",
        Outcome { changed: true, .. } => "changed",
        Outcome { .. } => "noop",
    };
    deps.metrics
        .routes
        .syncs
        .get_or_create(&RouteSyncLabels { outcome, trigger })
        .inc();
}
