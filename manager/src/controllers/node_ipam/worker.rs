//! The worker: queue, writes in flight, and their results.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use ipnet::IpNet;
use outrigger_leader::NotLeader;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::allocator::{Allocator, NodeRanges, Problem};
use super::apply::{self, Assigned};
use super::deps::Deps;
use crate::backoff::Backoff;
use crate::events::EventType;
use crate::node_cache::NodeView;
use crate::node_write::WriteError;

/// As kube-controller-manager's workers.
const MAX_CONCURRENT_WRITES: usize = 30;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// An Event is emitted at this failure in a row: kube-controller-manager's number of attempts.
const EVENT_AFTER_FAILURES: u32 = 3;

/// An error that ends the controller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node IPAM controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
    /// A defect: the flags are checked at start.
    #[error("the range {0} cannot be cut into ranges of /{1} for Nodes")]
    Ranges(IpNet, u8),
    /// A defect: a task panicked.
    #[error("a write of the node IPAM controller ended")]
    Task(#[source] JoinError),
}

pub(super) struct Worker {
    deps: Deps,
    allocator: Allocator,
    /// Names of Nodes without CIDRs, first in, first out.
    waiting: VecDeque<String>,
    /// The same names and those in flight, to queue each once.
    known: HashSet<String>,
    in_flight: JoinSet<Assigned>,
    backoff: Backoff<String>,
    /// Nodes for which no CIDR was free: retried as soon as one is released.
    without_range: BTreeSet<String>,
    /// Those with an Event.
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

    pub(super) fn begin_list(&mut self) -> u64 {
        self.allocator.begin_list()
    }

    pub(super) fn end_list(&mut self, list: u64, nodes: &[NodeView]) {
        nodes.iter().for_each(|node| self.observe(node));
        let released = self
            .allocator
            .release_missing(list, &nodes.iter().map(NodeView::uid).collect());
        self.update(released);
    }

    pub(super) fn needs_list(&self) -> bool {
        self.allocator.needs_list()
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
                let assign = apply::assign(self.deps.clone(), node, chosen.ranges);
                self.in_flight.spawn(assign);
                return;
            }
            (Err(exhausted), Some(node)) => {
                self.backoff.failed(&name.to_owned(), Instant::now());
                self.without_range.insert(name.to_owned());
                if self.reported.insert(name.to_owned()) {
                    tracing::warn!(node = name, cluster = %exhausted.0, "no CIDR is left for the Node");
                    apply::record_status(&self.deps, &node, "CIDRNotAvailable");
                }
            }
            // It has CIDRs that the cache does not show yet, or is gone.
            _ => {}
        }

        self.known.remove(name);
    }

    /// Waits for a write to end; `None` when there is none.
    pub(super) async fn next_written(&mut self) -> Option<Result<Assigned, JoinError>> {
        self.in_flight.join_next().await
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
            apply::record_status(&self.deps, node, "CIDRAssignmentFailed");
        }
    }

    /// Waits for all writes in flight. The next leader reads their results with a full list.
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
            format!(
                "Node {name}: spec.podCIDRs holds {text:?}, which is no CIDR; the Node is unchanged: create it again"
            )
        }
        Problem::OutOfRange(text) => format!(
            "Node {name}: its range {text} is outside of --cluster-cidr={}; a range cannot be changed, so the Node is \
             unchanged: create it again, or widen --cluster-cidr",
            clusters.join(",")
        ),
        Problem::Overlap(text, other) => format!(
            "Node {name}: its range {text} overlaps with that of Node {other}; a range cannot be changed, so both are \
             unchanged: create one of them again"
        ),
    }
}
