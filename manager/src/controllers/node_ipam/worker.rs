//! The worker: queue, writes, and their results.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use outrigger_leader::NotLeader;
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::Deps;
use super::allocator::{Allocator, NodeRanges, Problem};
use crate::backoff::Backoff;
use crate::events::{EventType, about_node};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

/// As kube-controller-manager's workers.
const MAX_CONCURRENT_WRITES: usize = 30;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// An Event is emitted at this failure in a row: kube-controller-manager's number of attempts.
const EVENT_AFTER_FAILURES: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node IPAM controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
    /// A defect: the flags are checked at start.
    #[error("the range {0} cannot be split into ranges of /{1} for Nodes")]
    Ranges(IpNet, u8),
    /// A defect: a task panicked.
    #[error("a write of the node IPAM controller ended")]
    Task(#[source] JoinError),
}

pub(super) struct Worker {
    deps: Deps,
    pub(super) allocator: Allocator,
    /// Names of Nodes without CIDRs, first in, first out.
    waiting: VecDeque<String>,
    /// The same names and those in flight, to queue each once.
    known: HashSet<String>,
    pub(super) in_flight: JoinSet<Assigned>,
    pub(super) backoff: Backoff<String>,
    /// Nodes for which no CIDR was free: retried as soon as one is released.
    without_range: BTreeSet<String>,
    reported: HashSet<String>,
}

fn needs_ranges(node: &NodeView) -> bool {
    node.spec.pod_cidrs.is_empty() && node.metadata.deletion_timestamp.is_none()
}

impl Worker {
    pub(super) fn new(deps: Deps, allocator: Allocator) -> Self {
        Self {
            deps,
            allocator,
            waiting: VecDeque::new(),
            known: HashSet::new(),
            in_flight: JoinSet::new(),
            backoff: Backoff::new(FIRST_BACKOFF, MAX_BACKOFF),
            without_range: BTreeSet::new(),
            reported: HashSet::new(),
        }
    }

    pub(super) fn end_list(&mut self, list: u64, nodes: &[NodeView]) {
        nodes.iter().for_each(|node| self.observe(node));
        let released = self
            .allocator
            .release_missing(list, &nodes.iter().map(NodeView::uid).collect());
        self.update(released);
    }

    /// Reconciles Nodes that changed in the cache.
    pub(super) fn reconcile(&mut self, names: &BTreeSet<String>) {
        let mut released = false;
        for name in names {
            let node = self.deps.nodes.node(name);
            released |= self.allocator.cache_shows(name, node.as_deref().map(NodeView::uid));
            match node {
                Some(node) if needs_ranges(&node) => self.queue(name),
                Some(node) => {
                    self.observe(&node);
                    self.forget(name);
                }
                None => self.forget(name),
            }
        }

        self.update(released);
    }

    pub(super) fn retry(&mut self) {
        let due = self.backoff.due(Instant::now()).into_iter().collect();
        self.reconcile(&due);
    }

    fn queue(&mut self, name: &str) {
        let key = name.to_owned();
        if self.backoff.may_try(&key, Instant::now()) && self.known.insert(key.clone()) {
            self.waiting.push_back(key);
        }
    }

    fn forget(&mut self, name: &str) {
        self.backoff.forget(&name.to_owned());
        self.without_range.remove(name);
        self.reported.remove(name);
    }

    fn observe(&mut self, node: &NodeView) {
        let (name, uid, ranges) = (node.name(), node.uid(), node.spec.pod_cidrs.as_slice());
        let Some(problem) = self.allocator.observe(NodeRanges { name, uid, ranges }) else {
            return;
        };
        let message = explain(name, &problem, &self.allocator);
        tracing::error!(node = name, reason = problem.reason(), "{message}");
        record(&self.deps, node, EventType::Warning, problem.reason(), &message);
    }

    /// Requeues the Nodes without a CIDR after a release, and updates the metrics.
    fn update(&mut self, released: bool) {
        if released {
            for name in std::mem::take(&mut self.without_range) {
                self.backoff.forget(&name);
                self.queue(&name);
            }
        }
        self.deps.metrics.update(&mut self.allocator);
    }

    pub(super) fn start_writes(&mut self) {
        while self.in_flight.len() < MAX_CONCURRENT_WRITES
            && let Some(name) = self.waiting.pop_front()
        {
            self.start_write(&name);
        }
    }

    /// Allocates CIDRs to a Node, if it still needs them, and starts the write.
    fn start_write(&mut self, name: &str) {
        let node = self.deps.nodes.node(name).filter(|node| needs_ranges(node));
        let chosen = match &node {
            Some(node) => self.allocator.reserve(name, node.uid()),
            None => Ok(None),
        };
        match (chosen, node) {
            (Ok(Some(chosen)), Some(node)) => {
                self.deps.metrics.tried(&self.allocator, &chosen.skipped);
                let assign = assign(self.deps.clone(), node, chosen.ranges);
                self.in_flight.spawn(assign);
                return;
            }
            (Err(exhausted), Some(node)) => {
                self.backoff.failed(&name.to_owned(), Instant::now());
                self.without_range.insert(name.to_owned());
                if self.reported.insert(name.to_owned()) {
                    tracing::warn!(node = name, cluster = %exhausted.0, "no CIDR is left for the Node");
                    record_status(&self.deps, &node, "CIDRNotAvailable");
                }
            }
            // It has CIDRs that the cache does not show yet, or is gone.
            _ => {}
        }

        self.known.remove(name);
    }

    /// Handles the result of a write. The CIDRs stay allocated in any case: a retry gets the same ones.
    pub(super) fn settle(&mut self, done: Result<Assigned, JoinError>) -> Result<(), Error> {
        let Assigned { node, written } = done.map_err(Error::Task)?;
        let name = node.name();
        self.known.remove(name);
        match written {
            Ok(now) => {
                tracing::info!(node = name, ranges = ?now.spec.pod_cidrs, "assigned CIDRs to the Node");
                self.observe(&now);
                self.forget(name);
            }
            Err(WriteError::Gone) => self.forget(name),
            Err(WriteError::NotLeader(lost)) => return Err(lost.into()),
            Err(error) => self.failed(&node, &error),
        }

        self.update(false);

        Ok(())
    }

    fn failed(&mut self, node: &NodeView, error: &WriteError) {
        let failures = self.backoff.failed(&node.name().to_owned(), Instant::now());
        if failures == 1 || failures == EVENT_AFTER_FAILURES {
            let (node, error) = (node.name(), error as &dyn std::error::Error);
            tracing::warn!(node, failures, error, "failed to write the CIDRs; retrying");
        }

        if failures == EVENT_AFTER_FAILURES {
            record_status(&self.deps, node, "CIDRAssignmentFailed");
        }
    }
}

fn explain(name: &str, problem: &Problem, allocator: &Allocator) -> String {
    let clusters: Vec<String> = allocator
        .sets()
        .iter()
        .map(|cidr_set| cidr_set.cluster().to_string())
        .collect();
    match problem {
        Problem::Unreadable(text) => {
            format!(
                "Node {name}: spec.podCIDRs holds {text:?}, which is not a CIDR; the Node is unchanged: delete it and create it again"
            )
        }
        Problem::OutOfRange(text) => format!(
            "Node {name}: its range {text} is outside of --cluster-cidr={}; a range cannot be changed, so the Node is \
             unchanged: create it again, or widen --cluster-cidr",
            clusters.join(",")
        ),
        Problem::TooLarge(text) => format!(
            "Node {name}: its range {text} is much larger than --node-cidr-mask-size says, so other Nodes get parts of it when no \
             other range is free; a range cannot be changed: create the Node again"
        ),
        Problem::Overlap(text, other) => format!(
            "Node {name}: its range {text} overlaps with that of Node {other}; a range cannot be changed, so both are \
             unchanged: create one of them again"
        ),
    }
}

/// A finished write: the Node before and after.
pub(super) struct Assigned {
    node: Arc<NodeView>,
    written: Result<NodeView, WriteError>,
}

async fn assign(deps: Deps, node: Arc<NodeView>, ranges: Vec<IpNet>) -> Assigned {
    tracing::debug!(node = node.name(), ?ranges, "assigning CIDRs");
    let patch = patch(&node, &ranges);
    let written = node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &patch).await;
    Assigned { node, written }
}

/// Emits an Event about a failed allocation, with kube-controller-manager's message and type.
fn record_status(deps: &Deps, node: &NodeView, reason: &str) {
    let message = format!("Node {} status is now: {reason}", node.name());
    record(deps, node, EventType::Normal, reason, &message);
}

fn record(deps: &Deps, node: &NodeView, kind: EventType, reason: &str, message: &str) {
    deps.events
        .record(&deps.permit, &about_node(node), kind, reason, message);
}

/// Applies to the Node of this UID only, and only while it has no CIDRs: API servers take a `test` for null as "absent".
/// They also reject every change of CIDRs.
fn patch(node: &NodeView, ranges: &[IpNet]) -> Vec<Value> {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    vec![
        node_patch::test_uid(node),
        json!({"op": "test", "path": "/spec/podCIDRs", "value": null}),
        json!({"op": "add", "path": "/spec/podCIDRs", "value": texts}),
        json!({"op": "add", "path": "/spec/podCIDR", "value": texts.first()}),
    ]
}
