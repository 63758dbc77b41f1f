//! Initializes new Nodes. They are described in groups and written one by one. A later Node does not wait for earlier
//! ones.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use outrigger_aws::ec2::MAX_FILTER_VALUES;
use outrigger_aws::{Error as AwsError, Kind as AwsKind};
use outrigger_shared::taints;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deps::Deps;
use super::desired::ZONE_ID;
use super::desired::addresses;
use super::error::{Error, Waiting};
use super::log_summary::LogSummary;
use super::observe::{self, ObservedHost, ZoneIds};
use super::retry::RetryQueue;
use super::{apply, desired, plan};
use crate::backoff::sleep_until;
use crate::instances::Priority;
use crate::metrics::ReasonLabel;
use crate::node_cache::NodeView;
use crate::node_write::{Part, WriteError};

/// Maximum age of a description: below the first backoff, so that a retry sees a new one.
const MAX_AGE: Duration = Duration::from_millis(500);

/// Concurrent repairs of labels. They concern Nodes that work, so there are few.
const REPAIRS: usize = 4;

/// Name of the queue in metrics `workqueue_*`. A Node waits from the observation that it needs work until its write.
const QUEUE: &str = "Nodes";

type Outcome = (Arc<NodeView>, Result<(), Waiting>);
type Outcomes = mpsc::UnboundedSender<Outcome>;

struct Shared<'a> {
    deps: &'a Deps,
    zone_ids: &'a ZoneIds,
    stop: &'a CancellationToken,
    slots: Semaphore,
    repair_slots: Semaphore,
}

/// Initializes Nodes until `stop`; writes in flight are finished.
pub(super) async fn run(deps: &Deps, zone_ids: &ZoneIds, stop: &CancellationToken) -> Result<(), Error> {
    let shared = Shared {
        deps,
        zone_ids,
        stop,
        slots: Semaphore::new(deps.initializations.max(1)),
        repair_slots: Semaphore::new(REPAIRS),
    };
    let changes = deps
        .nodes
        .subscribe_where(|was, is| was.is_some_and(needs_work) || is.is_some_and(needs_work));
    let (done, mut outcomes) = mpsc::unbounded_channel();
    let mut running: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    let mut state = State::default();
    let mut window_ends: Option<Instant> = None;
    let mut result = Ok(());

    while result.is_ok() {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(outcome) = outcomes.recv() => {
                result = state.settle_all(deps, outcome, &mut outcomes);
            }
            Some(()) = running.next(), if !running.is_empty() => {}
            () = sleep_until(window_ends.or_else(|| state.retries.next_due())) => {
                window_ends = None;
                let mut names = changes.take();
                names.extend(state.retries.due(Instant::now()));
                state.begin(&shared, names, &done, &running);
            }
            () = changes.changed(), if window_ends.is_none() => window_ends = Some(Instant::now() + deps.window),
            () = sleep_until(state.summary.due()) => {
                state.summary.log("Nodes wait for their initialization", Instant::now());
            }
        }
    }

    if result.is_err() {
        stop.cancel();
    }

    while running.next().await.is_some() {}
    while let Ok(outcome) = outcomes.try_recv() {
        let settled = state.settle(deps, outcome);
        result = result.and(settled);
    }

    result
}

fn needs_work(node: &NodeView) -> bool {
    node.has_taint(taints::UNINITIALIZED) || !plan::repair_labels(node).is_empty()
}

#[derive(Default)]
struct State {
    retries: RetryQueue,
    busy: BTreeSet<String>,
    summary: LogSummary,
}

impl State {
    /// Starts work on those of these Nodes that need it now.
    fn begin<'a>(
        &mut self,
        shared: &'a Shared<'a>,
        names: BTreeSet<String>,
        done: &Outcomes,
        running: &FuturesUnordered<BoxFuture<'a, ()>>,
    ) {
        let now = Instant::now();
        let queue = shared.deps.metrics.queue(QUEUE);
        let mut tainted = Vec::new();

        for name in names {
            if self.busy.contains(&name) {
                // It is retried after its present outcome is known.
                self.retries.hold(&name, now);
                continue;
            }
            match shared.deps.nodes.node(&name) {
                None => {
                    queue.forget(&name);
                    self.retries.forget(&name);
                }
                Some(node) if !self.retries.may_try(&name, node.uid(), now) => {}
                Some(node) if node.has_taint(taints::UNINITIALIZED) => {
                    queue.add(&name);
                    self.take(&name, now);
                    tainted.push(node);
                }
                Some(node) if !plan::repair_labels(&node).is_empty() => {
                    queue.add(&name);
                    self.take(&name, now);
                    running.push(repair(shared, node, done.clone()).boxed());
                }
                Some(_) => self.retries.forget(&name),
            }
        }

        for group in tainted.chunks(MAX_FILTER_VALUES) {
            running.push(initialize_group(shared, group.to_vec(), done.clone()).boxed());
        }
    }

    fn take(&mut self, name: &str, now: Instant) {
        self.retries.hold(name, now);
        self.busy.insert(name.to_owned());
    }

    /// Settles this outcome and all that are available, then updates the metric of waiting Nodes.
    fn settle_all(
        &mut self,
        deps: &Deps,
        first: Outcome,
        outcomes: &mut mpsc::UnboundedReceiver<Outcome>,
    ) -> Result<(), Error> {
        let mut next = Some(first);
        while let Some(outcome) = next {
            self.settle(deps, outcome)?;
            next = outcomes.try_recv().ok();
        }

        deps.metrics.nodes.waiting.clear();
        for (reason, count) in self.retries.by_reason() {
            deps.metrics
                .nodes
                .waiting
                .get_or_create(&ReasonLabel { reason })
                .set(count);
        }

        Ok(())
    }

    fn settle(&mut self, deps: &Deps, (node, outcome): Outcome) -> Result<(), Error> {
        let now = Instant::now();
        self.busy.remove(node.name());

        let waiting = match outcome {
            Ok(()) => {
                self.retries.settled(node.name(), node.uid(), now);
                return Ok(());
            }
            Err(Waiting::Write(WriteError::Gone)) => {
                self.retries.forget(node.name());
                return Ok(());
            }
            Err(Waiting::Write(WriteError::NotLeader(lost))) => return Err(lost.into()),
            Err(waiting) => waiting,
        };

        deps.metrics.queue(QUEUE).retry();

        let reason = waiting.reason();
        let report = self.retries.failed(node.name(), node.uid(), reason, now);
        if report.log {
            self.summary.add(reason, node.name(), || apply::chain(&waiting));
        }

        if report.event {
            apply::report_waiting(deps, &node, &waiting);
        }

        Ok(())
    }
}

async fn initialize_group(shared: &Shared<'_>, nodes: Vec<Arc<NodeView>>, done: Outcomes) {
    let deps = shared.deps;
    let question = async {
        let seen = observe::hosts(deps, nodes, Priority::Initialize, MAX_AGE).await;
        let zones = shared
            .zone_ids
            .covering(deps.ec2.as_ref(), Priority::Initialize, &seen)
            .await;
        (seen, zones)
    };
    // A read may be cancelled at the end, a write may not.
    let Some((seen, (zones, failed))) = shared.stop.run_until_cancelled(question).await else {
        return;
    };

    let tell = |outcome: Outcome| {
        // The receiver lives until this group has ended.
        let _ = done.send(outcome);
    };
    let (seen, zones, failed, tell) = (seen, &zones, &failed, &tell);
    futures::stream::iter(seen)
        .for_each_concurrent(deps.initializations.max(1), |(node, host)| async move {
            let (Ok(_slot), false) = (shared.slots.acquire().await, shared.stop.is_cancelled()) else {
                return;
            };
            let _working = deps.metrics.queue(QUEUE).start(node.name());
            let outcome = initialize_one(deps, (Arc::clone(&node), host), (zones, failed.as_ref())).await;
            tell((node, outcome));
        })
        .await;
}

async fn initialize_one(
    deps: &Deps,
    (node, host): ObservedHost,
    (zones, failed): (&HashMap<String, String>, Option<&AwsError>),
) -> Result<(), Waiting> {
    let host = host?;
    let wanted = match desired::desired(&node, &host, &deps.place, Some(zones)) {
        Err(Waiting::UnknownZone(zone)) => match failed {
            // Only a label needs the zone's ID, so a missing permission must not keep the Node tainted.
            Some(error) if error.kind() == AwsKind::AccessDenied => {
                apply::report_denied(deps, &node, ZONE_ID, error);
                desired::desired(&node, &host, &deps.place, None)?
            }
            Some(error) => return Err(Waiting::Cloud(error.clone())),
            None => return Err(Waiting::UnknownZone(zone)),
        },
        wanted => wanted?,
    };

    let addresses = addresses::first_addresses(&node, &host, &deps.place.families)?;
    let plan = plan::initialize(&node, &wanted, &addresses);

    apply::initialize(deps, &node, &plan).await.map_err(Waiting::Write)
}

async fn repair(shared: &Shared<'_>, node: Arc<NodeView>, done: Outcomes) {
    let (Ok(_slot), false) = (shared.repair_slots.acquire().await, shared.stop.is_cancelled()) else {
        return;
    };

    let _working = shared.deps.metrics.queue(QUEUE).start(node.name());
    let operations = plan::repair_labels(&node);
    let written = apply::patch(shared.deps, &node, Part::Node, &operations).await;
    // The receiver lives until this repair has ended.
    let _ = done.send((node, written.map_err(Waiting::Write)));
}
