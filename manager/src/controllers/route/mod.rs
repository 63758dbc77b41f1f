//! The route controller: a route of the VPC for each Node's Pod range.
//!
//! ```text
//! Nodes, tick ──▶ observe (one DescribeRouteTables) ──▶ plan (pure) ──▶ apply: routes, then NetworkUnavailable
//! ```
//!
//! It serves the route table that the cloud configuration names, or every table of the VPC with the cluster's tag, all
//! alike. IPv4 only. Without a change it writes nothing. [`plan`] decides which routes are managed, and
//! [`confirmation`] decides when a route may be deleted.

mod apply;
mod condition;
pub mod confirmation;
mod dry_run;
mod failures;
mod observe;
pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Kind};
use outrigger_leader::{NotLeader, Permit};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::events::Recorder;
use crate::instances::{Instances, Target};
use crate::metrics::{Metrics, RouteSyncLabels};
use crate::node_cache::{Changes, NodeCache, NodeView};
use apply::{Outcome, Reports};
use confirmation::Confirmations;
pub use dry_run::dry_run;
use observe::Membership;
pub use observe::ObserveError;

/// Source of this controller's Events: upstream's, with the underscore.
pub const EVENT_COMPONENT: &str = "route_controller";

/// How long changes of Nodes are collected, so that a burst of Nodes costs one pass.
const WINDOW: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the route controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}

#[derive(Default)]
struct State {
    membership: Membership,
    confirmations: Confirmations,
    reports: Reports,
    /// When to reconcile before the next tick.
    retry_after: Option<Instant>,
}

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub ec2: Arc<dyn Ec2>,
    pub instances: Instances,
    /// The cluster's ID in the tags of its route tables and instances.
    pub cluster_id: String,
    /// Where tagged tables are looked for.
    pub vpc_id: String,
    /// The one table to be managed, whatever its tags.
    pub route_table_id: Option<String>,
    /// Routes outside this range are never changed or deleted.
    pub cluster: plan::ClusterRange,
    /// From the start of one periodic pass to the next.
    pub period: Duration,
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`].
    pub events: Recorder,
    pub permit: Permit,
}

/// Runs until `stop`, and returns only when no write is in flight. Waits until all Nodes are known.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and no longer permitted.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }

    let mut state = State::default();
    let changed = relevant_changes(&deps.nodes);
    let mut ticks = tokio::time::interval(deps.period.max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut unreadable = false;
    loop {
        let retry_after = state.retry_after.unwrap_or_else(Instant::now);
        let trigger = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => "periodic",
            () = tokio::time::sleep_until(retry_after), if state.retry_after.is_some() => "periodic",
            // While the routes cannot be read, changes of Nodes wait for the tick.
            () = gather(&changed), if !unreadable => "node_change",
        };
        let passed = pass(&deps, &mut state, &stop).await?;
        unreadable = passed.is_err();

        let outcome = match passed {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot read the routes; nothing is changed"
                );

                if let ObserveError::Aws(error) = &error
                    && error.kind() == Kind::AccessDenied
                {
                    apply::report_denied(&deps, &state.reports, "", error);
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

/// Later changes of Nodes that affect routes. Heartbeats and this controller's own writes do not.
fn relevant_changes(nodes: &NodeCache) -> Arc<Changes> {
    let changes = nodes.subscribe_where(|was, is| was.and_then(fingerprint) != is.and_then(fingerprint));
    drop(changes.take());
    changes
}

/// The fields that affect routes; `None` for a Node without a range, which has no route.
fn fingerprint(node: &NodeView) -> Option<(&str, Target, &[String])> {
    let ranges = &node.spec.pod_cidrs;
    (!ranges.is_empty()).then(|| (node.uid(), Target::of(node), ranges.as_slice()))
}

/// Waits for a change, then for [`WINDOW`]. Cancel safe.
async fn gather(changes: &Changes) {
    changes.changed().await;
    tokio::time::sleep(WINDOW).await;
    drop(changes.take());
}

async fn pass(
    deps: &Deps,
    state: &mut State,
    stop: &CancellationToken,
) -> Result<Result<Outcome, ObserveError>, NotLeader> {
    state.retry_after = None;

    let observed = tokio::select! {
        () = stop.cancelled() => return Ok(Ok(Outcome::default())),
        observed = observe::observe(deps, &mut state.membership) => observed,
    };
    let observed = match observed {
        Ok(observed) => observed,
        Err(error) => return Ok(Err(error)),
    };
    let now = Instant::now();
    let plan = plan::plan(&observed, deps.cluster, &mut state.confirmations, now);
    state.retry_after = plan.retry_after.map(|left| now + left);
    if plan.deferred > 0 && deps.metrics.routes.deferred.get() == 0 {
        tracing::warn!(
            routes = plan.deferred,
            "mass loss: deferring the deletion of many routes for a minute. Check that all Nodes exist"
        );
    }

    deps.metrics
        .routes
        .deferred
        .set(i64::try_from(plan.deferred).unwrap_or(i64::MAX));

    let outcome = apply::apply(deps, plan, &observed.members, &state.reports, stop).await?;
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
