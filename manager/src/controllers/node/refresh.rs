//! Refreshes initialized Nodes: updates addresses and completes missing fields. All Nodes in each period; a Node that
//! becomes incomplete, soon.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use outrigger_shared::taints;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::deps::Deps;
use super::desired::{Host, addresses};
use super::error::{Error, Waiting};
use super::log_summary::LogSummary;
use super::observe::{self, ObservedHost, ZoneIds};
use super::plan::completion::{complete, lacks_something};
use super::plan::rewrite_limit::{AddressAction, AddressRewrites, CompletionAction, Completions};
use super::{apply, desired};
use crate::events::EventDedup;
use crate::instances::{Priority, Target};
use crate::metrics::KindLabel;
use crate::node_cache::NodeView;
use crate::node_write::{Part, WriteError};

/// Nodes described and compared at once: as many as one call can ask for.
const GROUP: usize = 1000;

const MAX_AGE: Duration = Duration::from_secs(60);

/// How long other writers have time to complete a Node.
const SETTLE: Duration = Duration::from_secs(2);

/// Backoff after a conflict with another writer.
const AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    rewrites: AddressRewrites,
    completions: Completions,
    /// Reasons why provider IDs are refused, by UID.
    refused: EventDedup,
    /// UIDs of incomplete Nodes that were reconciled since the last full pass.
    tried: HashSet<String>,
    again: BTreeSet<String>,
}

struct Write {
    node: Arc<NodeView>,
    part: Part,
    operations: Vec<Value>,
    notes: String,
}

pub(super) async fn run(deps: &Deps, zone_ids: &ZoneIds, stop: &CancellationToken) -> Result<(), Error> {
    let external = deps.kubelets_external.clone();
    let changes = deps
        .nodes
        .subscribe_where(move |_, is| is.is_some_and(|node| has_work(node, *external.borrow())));
    let mut state = State::default();
    let mut ticks = tokio::time::interval(deps.refresh_period.max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let nodes = tokio::select! {
            // A full pass includes the incomplete Nodes, so it comes first: at the start, both are due.
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {
                drop(changes.take());
                all(deps, &mut state)
            }
            () = changes.changed() => {
                if stop.run_until_cancelled(tokio::time::sleep(SETTLE)).await.is_none() {
                    return Ok(());
                }
                incomplete(deps, changes.take(), &mut state)
            }
            () = tokio::time::sleep(AGAIN), if !state.again.is_empty() => {
                let names = std::mem::take(&mut state.again);
                incomplete(deps, names, &mut state)
            }
        };

        for group in nodes.chunks(GROUP) {
            pass(deps, zone_ids, group.to_vec(), &mut state, stop).await?;
        }

        deps.metrics
            .nodes
            .address_rewrites_stopped
            .set(i64::try_from(state.rewrites.stopped()).unwrap_or(i64::MAX));
    }
}

fn all(deps: &Deps, state: &mut State) -> Vec<Arc<NodeView>> {
    let mut nodes = deps.nodes.snapshot();
    let uids: BTreeSet<&str> = nodes.iter().map(|node| node.uid()).collect();
    state.rewrites.retain(&uids);
    state.completions.retain(&uids);
    state.refused.retain(&uids.iter().copied().collect());
    state.tried.clear();

    // Nodes that are not managed are counted, too.
    let mut counts = HashMap::from(Target::KINDS.map(|kind| (kind, 0)));
    for node in &nodes {
        *counts.entry(Target::of(node).kind()).or_default() += 1;
    }
    for (kind, count) in counts {
        deps.metrics.nodes.by_kind.get_or_create(&KindLabel { kind }).set(count);
    }

    nodes.retain(|node| !node.has_taint(taints::UNINITIALIZED));

    nodes
}

fn incomplete(deps: &Deps, names: BTreeSet<String>, state: &mut State) -> Vec<Arc<NodeView>> {
    let external = *deps.kubelets_external.borrow();
    names
        .iter()
        .filter_map(|name| deps.nodes.node(name))
        .filter(|node| has_work(node, external) && state.tried.insert(node.uid().to_owned()))
        .collect()
}

/// It lacks something, or its provider ID is refused, which has to be reported.
fn has_work(node: &NodeView, external: bool) -> bool {
    lacks_something(node, external) || matches!(Target::of(node), Target::Refused(_))
}

async fn pass(
    deps: &Deps,
    zone_ids: &ZoneIds,
    nodes: Vec<Arc<NodeView>>,
    state: &mut State,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let mut summary = LogSummary::default();
    let question = async {
        let seen = observe::hosts(deps, nodes, Priority::Refresh, MAX_AGE).await;
        let zones = zones(deps, zone_ids, &seen, &mut summary).await;
        (seen, zones)
    };
    let Some((seen, zones)) = stop.run_until_cancelled(question).await else {
        return Ok(());
    };

    let external = *deps.kubelets_external.borrow();
    let mut writes = Vec::new();
    for (node, host) in seen {
        let planned = host.and_then(|host| {
            writes.extend(completion(deps, &node, &host, &zones, external, state)?);
            refreshed(deps, &node, &host, external, state)
        });
        match planned {
            Ok(write) => writes.extend(write),
            Err(Waiting::Foreign(_)) => {}
            Err(Waiting::Refused(reason)) => {
                if state.refused.is_new(node.uid(), &reason, Instant::now()) {
                    apply::report_refused(deps, &node, &reason);
                }
            }
            Err(waiting) => summary.add(waiting.reason(), node.name(), || apply::chain(&waiting)),
        }
    }

    // One after the other: the first holds only for a Node as it was seen.
    let (completions, addresses) = writes.into_iter().partition(|write: &Write| write.part == Part::Node);
    write_all(deps, completions, state, &mut summary, stop).await?;
    write_all(deps, addresses, state, &mut summary, stop).await?;
    summary.log("Nodes are not refreshed", Instant::now());

    Ok(())
}

/// The IDs of zones, where an initialized Node may lack its own. No answer is no reason to leave the rest.
async fn zones(
    deps: &Deps,
    zone_ids: &ZoneIds,
    seen: &[ObservedHost],
    summary: &mut LogSummary,
) -> Arc<HashMap<String, String>> {
    if !*deps.kubelets_external.borrow() {
        return Arc::default();
    }

    let (zones, failed) = zone_ids.covering(deps.ec2.as_ref(), Priority::Refresh, seen).await;
    if let Some(error) = failed {
        summary.add("Zones", "any", || error.to_string());
    }

    zones
}

fn completion(
    deps: &Deps,
    node: &Arc<NodeView>,
    host: &Host,
    zones: &HashMap<String, String>,
    external: bool,
    state: &mut State,
) -> Result<Option<Write>, Waiting> {
    if !lacks_something(node, external) {
        state.completions.is_complete(node);
        return Ok(None);
    }

    let known = host.zone().is_some_and(|zone| zones.contains_key(zone));
    let wanted = desired::desired(node, host, &deps.place, known.then_some(zones))?;
    let completion = complete(node, &wanted);
    if completion.operations.is_empty() {
        return Ok(None);
    }

    match state.completions.decide(node, external) {
        CompletionAction::Write => Ok(Some(Write {
            node: Arc::clone(node),
            part: Part::Node,
            operations: completion.operations,
            notes: completion.notes.join("; "),
        })),
        CompletionAction::Stop { first } => {
            if first {
                apply::report_incomplete(deps, node, &completion.notes);
            }
            Ok(None)
        }
    }
}

fn refreshed(
    deps: &Deps,
    node: &Arc<NodeView>,
    host: &Host,
    external: bool,
    state: &mut State,
) -> Result<Option<Write>, Waiting> {
    let wanted = addresses::addresses(node, host, &deps.place.families)?;
    match state.rewrites.decide(node, &wanted, external) {
        AddressAction::Keep | AddressAction::Stop { first: false } => Ok(None),
        AddressAction::Stop { first: true } => {
            apply::report_stopped(deps, node);
            Ok(None)
        }
        AddressAction::Write(operations) => Ok(Some(Write {
            node: Arc::clone(node),
            part: Part::Status,
            operations,
            notes: "addresses".to_owned(),
        })),
    }
}

/// Writes, as many at a time as may be; none is begun after `stop`, and all that were begun are finished.
async fn write_all(
    deps: &Deps,
    writes: Vec<Write>,
    state: &mut State,
    summary: &mut LogSummary,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let done: Vec<(Write, Result<(), WriteError>)> = futures::stream::iter(writes)
        .take_while(|_| std::future::ready(!stop.is_cancelled()))
        .map(|write| async move {
            tracing::info!(node = write.node.name(), changes = write.notes, "refreshing the Node");
            let written = apply::patch(deps, &write.node, write.part, &write.operations).await;
            (write, written)
        })
        .buffer_unordered(deps.refreshes.max(1))
        .collect()
        .await;

    for (write, written) in done {
        match (written, write.part) {
            (Ok(()), Part::Status) => state.rewrites.written(&write.node),
            (Ok(()), Part::Node) => state.completions.written(&write.node),
            (Err(WriteError::NotLeader(lost)), _) => return Err(lost.into()),
            (Err(WriteError::Gone), _) => {}
            (Err(error), _) => {
                if matches!(error, WriteError::Conflict(_)) {
                    state.tried.remove(write.node.uid());
                    state.again.insert(write.node.name().to_owned());
                }
                summary.add("WriteError", write.node.name(), || apply::chain(&error));
            }
        }
    }

    Ok(())
}
