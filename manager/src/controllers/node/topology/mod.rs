//! The labels that tell how near Nodes are to each other in EC2's network.
//!
//! They come after initialization, in calls for up to a hundred instances, since the account may ask once a second: a
//! Node is of use without them, and no Node waits for them.

pub mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{InstanceId, Kind as AwsKind};
use outrigger_leader::NotLeader;
use outrigger_shared::taints;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::desired::ZONE_ID;
use crate::controllers::node::apply;
use crate::controllers::node::deps::Deps;
use crate::controllers::node::error::Error;
use crate::instances::{Priority, Target};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{Part, WriteError};
pub use plan::Pattern;
use plan::{Candidate, Report, State};

/// The interval of the pass over all Nodes, for Nodes that were deferred.
const SWEEP: Duration = Duration::from_secs(600);

pub(super) async fn run(deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let changes = deps.nodes.subscribe_where(|_, is| is.is_some_and(lacks_layers));
    let mut external = deps.kubelets_external.clone();
    let mut state = State::new(deps.topology.clone(), Instant::now());
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => open.extend(changes.take()),
            Ok(()) = external.changed() => open.extend(all(deps)),
            _ = sweep.tick() => {
                state.sweep(Instant::now());
                open.extend(all(deps));
            }
            () = tokio::time::sleep_until(state.next_call()), if !open.is_empty() => {
                step(deps, &mut state, &mut open, stop).await?;
            }
        }
    }
}

fn all(deps: &Deps) -> impl Iterator<Item = String> {
    let nodes = deps.nodes.snapshot().into_iter();
    nodes
        .filter(|node| lacks_layers(node))
        .map(|node| node.name().to_owned())
}

/// Whether a Node is initialized and lacks its outermost layer, which stands for all of them.
fn lacks_layers(node: &NodeView) -> bool {
    !node.has_taint(taints::UNINITIALIZED) && node.label(&plan::label(1)).is_none()
}

/// A Node that an in-tree kubelet brought is not touched before the end of the migration; one that a cloud controller
/// manager initialized has its zone's ID.
fn candidate(node: Arc<NodeView>, kubelets_external: bool) -> Option<Candidate> {
    let ours = kubelets_external || node.label(ZONE_ID).is_some();
    let kind = node.label("node.kubernetes.io/instance-type");
    let kind = kind.filter(|kind| ours && !kind.is_empty())?.to_owned();
    node.provider_id()?;
    let id = Target::of(&node).id()?.clone();
    Some(Candidate { node, id, kind })
}

/// One call, and the writes that follow from it.
async fn step(
    deps: &Deps,
    state: &mut State,
    open: &mut BTreeSet<String>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let now = Instant::now();
    let external = *deps.kubelets_external.borrow();
    let candidates: Vec<Candidate> = open
        .iter()
        .filter_map(|name| deps.nodes.node(name))
        .filter(|node| lacks_layers(node))
        .filter_map(|node| candidate(node, external))
        .filter(|candidate| state.may_ask(candidate, now))
        .collect();

    // The other Nodes are handled after their next change, or in the next pass over all Nodes.
    *open = candidates.iter().map(|one| one.node.name().to_owned()).collect();

    let asked = state.choose(&candidates, now);
    if asked.is_empty() {
        return Ok(());
    }

    let ids: Vec<InstanceId> = asked.iter().map(|one| one.id.clone()).collect();
    let question = Priority::Background.run(deps.ec2.instance_topology(&ids));
    let Some(answer) = stop.run_until_cancelled(question).await else {
        return Ok(());
    };

    match answer {
        Ok(found) => {
            for (candidate, labels) in state.answered(asked, found, Instant::now()) {
                if stop.is_cancelled() {
                    return Ok(());
                }

                let node = Arc::clone(&candidate.node);
                open.remove(node.name());
                if let Err(error) = write(deps, &node, &labels).await? {
                    tracing::info!(
                        node = node.name(),
                        error = apply::chain(&error),
                        "failed to write topology labels; retrying"
                    );
                    state.not_written(candidate, Instant::now());
                }
            }
        }
        Err(error) => match state.failed(&asked, &error, Instant::now()) {
            Report::Nothing => {}
            Report::RegionOff(message) => {
                tracing::warn!(
                    error = message,
                    "EC2 has no network topology in this region; setting no topology labels for a day"
                );
                if error.kind() == AwsKind::AccessDenied
                    && let Some(first) = asked.first()
                {
                    apply::report_denied(deps, &first.node, &plan::label(1), &error);
                }
            }
            Report::Failing(error) => {
                tracing::warn!(error, "failed to describe the instance topology; retrying")
            }
        },
    }

    Ok(())
}

async fn write(deps: &Deps, node: &NodeView, labels: &[(String, String)]) -> Result<Result<(), WriteError>, NotLeader> {
    if labels.is_empty() {
        return Ok(Ok(()));
    }

    let mut operations = vec![node_patch::test_uid(node)];
    operations.extend(node_patch::set_labels(node, labels));
    match apply::patch(deps, node, Part::Node, &operations).await {
        Err(WriteError::NotLeader(lost)) => Err(lost),
        Err(WriteError::Gone) => Ok(Ok(())),
        done => Ok(done),
    }
}
