//! What is to be done, what is under way, and what follows from what came out.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::allocator::{Allocator, NodeRanges, Problem};
use super::apply::{self, Assigned};
use super::deps::Deps;
use super::error::Error;
use crate::backoff::Backoff;
use crate::events::EventType;
use crate::node_cache::NodeView;
use crate::node_write::WriteError;

/// Writes under way at the same time, as upstream's workers.
const MAX_CONCURRENT_WRITES: usize = 30;
/// First pause after a failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// At this failure in a row there is an Event: upstream tries as often.
const EVENT_AFTER_FAILURES: u32 = 3;

/// The state of a run.
pub(super) struct Worker {
    deps: Deps,
    allocator: Allocator,
    /// Names of Nodes without ranges, in the order in which they came.
    waiting: VecDeque<String>,
    /// The same names, to have each once, and those that are being written.
    known: HashSet<String>,
    in_flight: JoinSet<Assigned>,
    backoff: Backoff<String>,
    /// Nodes for which there was no range: tried again as soon as one is released.
    without_range: BTreeSet<String>,
    /// Those of them that have their Event.
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

    /// A full list begins.
    pub(super) fn begin_list(&mut self) -> u64 {
        self.allocator.begin_list()
    }

    /// Takes in a full list.
    pub(super) fn end_list(&mut self, list: u64, nodes: &[NodeView]) {
        nodes.iter().for_each(|node| self.observe(node));
        let released = self
            .allocator
            .release_missing(list, &nodes.iter().map(NodeView::uid).collect());
        self.update(released);
    }

    /// Whether only a further full list can tell who is gone.
    pub(super) fn needs_list(&self) -> bool {
        self.allocator.needs_list()
    }

    /// Looks at Nodes that the cache says have changed.
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

    /// Looks again at those that are due.
    pub(super) fn retry(&mut self) {
        let due = self.backoff.due(Instant::now()).into_iter().collect();
        self.reconcile(&due);
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.backoff.next_due(Instant::now())
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
        apply::record(&self.deps, node, EventType::Warning, problem.reason(), &message);
    }

    /// What was released is for those who wait; the metrics follow.
    fn update(&mut self, released: bool) {
        if released {
            for name in std::mem::take(&mut self.without_range) {
                self.backoff.forget(&name);
                self.queue(&name);
            }
        }
        self.deps.metrics.update(&mut self.allocator);
    }

    /// Starts what is to be done, as much as may be under way.
    pub(super) fn start_writes(&mut self) {
        while self.in_flight.len() < MAX_CONCURRENT_WRITES
            && let Some(name) = self.waiting.pop_front()
        {
            self.start_write(&name);
        }
    }

    /// Chooses ranges for a Node, if it still needs_ranges some, and begins to write them.
    fn start_write(&mut self, name: &str) {
        let node = self.deps.nodes.node(name).filter(|node| needs_ranges(node));
        let chosen = match &node {
            Some(node) => self.allocator.reserve(name, node.uid()),
            None => Ok(None),
        };
        match (chosen, node) {
            (Ok(Some(chosen)), Some(node)) => {
                self.deps.metrics.tried(&self.allocator, &chosen.skipped);
                let assign = apply::assign(self.deps.clone(), node, chosen.ranges);
                self.in_flight.spawn(assign);
                return;
            }
            (Err(exhausted), Some(node)) => {
                self.backoff.failed(&name.to_owned(), Instant::now());
                self.without_range.insert(name.to_owned());
                if self.reported.insert(name.to_owned()) {
                    tracing::warn!(node = name, cluster = %exhausted.0, "no range is left for the Node");
                    apply::record_status(&self.deps, &node, "CIDRNotAvailable");
                }
            }
            // It has ranges, though the cache does not show them yet, or is gone.
            _ => {}
        }
        self.known.remove(name);
    }

    /// Waits for a write to end; `None` when there is none.
    pub(super) async fn next_written(&mut self) -> Option<Result<Assigned, JoinError>> {
        self.in_flight.join_next().await
    }

    /// What follows from a write. Whatever came out, the ranges stay this Node's: a second try gets the same ones.
    pub(super) fn settle(&mut self, done: Result<Assigned, JoinError>) -> Result<(), Error> {
        let Assigned { node, written } = done.map_err(Error::Task)?;
        let name = node.name();
        self.known.remove(name);
        match written {
            Ok(now) => {
                tracing::info!(node = name, ranges = ?now.spec.pod_cidrs, "the Node has its ranges");
                self.observe(&now);
                self.forget(name);
            }
            // The cache will say so.
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
            tracing::warn!(node, failures, error, "the ranges were not written; it is tried again");
        }
        if failures == EVENT_AFTER_FAILURES {
            apply::record_status(&self.deps, node, "CIDRAssignmentFailed");
        }
    }

    /// Waits for all that is under way. Whoever runs next reads what came out from a full list.
    pub(super) async fn finish(mut self) {
        while self.in_flight.join_next().await.is_some() {}
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
            format!("Node {name}: spec.podCIDRs holds {text:?}, which is no range; the Node is left alone")
        }
        Problem::OutOfRange(text) => format!(
            "Node {name}: its range {text} is outside of --cluster-cidr={}; ranges cannot be changed, so the Node is left \
             alone: make it anew, or widen --cluster-cidr",
            clusters.join(",")
        ),
        Problem::Overlap(text, other) => format!(
            "Node {name}: its range {text} overlaps with that of Node {other}; ranges cannot be changed, so both are left \
             alone: make one of them anew"
        ),
    }
}
