//! The cloud node controller: gives a new Node its provider ID, labels and addresses and takes its uninitialized
//! taint off; keeps addresses true afterwards; keeps old and new topology labels equal.
//!
//! ```text
//! node cache ─names that changed─▶ observe (one describe) ─▶ desired ─▶ plan ─▶ apply
//!            ─every period, all──▶ observe (one describe) ─▶ desired ─▶ plan ─▶ apply
//! ```
//!
//! The two flows share nothing but the cache, so refreshing thousands of Nodes never delays a new one.

mod apply;
pub mod desired;
mod error;
mod observe;
pub mod plan;
mod retry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use outrigger_aws::Ec2;
use outrigger_leader::Permit;
use outrigger_shared::taints;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::events::Recorder;
use crate::instances::{Instances, Lane};
use crate::metrics::{Metrics, ReasonLabel};
use crate::node_cache::{NodeCache, NodeView};
use crate::node_patch::{Part, WriteError};
use desired::Place;
pub use error::{Error, Waiting};
use observe::{Seen, ZoneIds};
use plan::{Refresh, Rewrites};
use retry::Waitlist;

/// Source of this controller's Events.
pub const EVENT_COMPONENT: &str = "cloud-node-controller";
/// Name of the queue in metrics `workqueue_*`. A Node waits from the look that finds that it wants something until its
/// turn comes to be written.
const QUEUE: &str = "Nodes";

/// How old an answer of EC2 may be for a new Node: its instance may have appeared a moment ago.
const NEW_MAX_AGE: Duration = Duration::from_millis(500);
/// The same for a refresh, so that what was just initialized is not asked for again.
const REFRESH_MAX_AGE: Duration = Duration::from_secs(30);

/// What the controller works with.
#[derive(Clone)]
pub struct Deps {
    /// Client for writes.
    pub client: kube::Client,
    /// The Nodes; filled by someone else.
    pub nodes: NodeCache,
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// What EC2 says about the instances of Nodes.
    pub instances: Instances,
    /// Region and address families.
    pub place: Place,
    /// Nodes initialized at the same time, at least 1.
    pub initializations: usize,
    /// Addresses written at the same time, at least 1.
    pub refreshes: usize,
    /// From the start of one refresh of all addresses to the next.
    pub refresh_period: Duration,
    /// How long new Nodes are collected before one describe asks for all of them.
    pub window: Duration,
    /// Whether no kubelet writes addresses any more (true outside of a migration, and once it is complete).
    pub kubelets_external: watch::Receiver<bool>,
    /// Metrics.
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`].
    pub events: Recorder,
    /// The right to write.
    pub permit: Permit,
}

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    // Whichever flow ends first takes the other with it, and both are waited for.
    let both = stop.child_token();
    let (initialized, refreshed) = tokio::join!(
        async { stop_after(initialize_until(&deps, &both).await, &both) },
        async { stop_after(refresh_until(&deps, &both).await, &both) },
    );
    initialized.and(refreshed)
}

fn stop_after<T>(result: T, stop: &CancellationToken) -> T {
    stop.cancel();
    result
}

/// New Nodes: whenever one changed or is due again, all that want it are initialized together.
async fn initialize_until(deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let changes = deps.nodes.subscribe();
    let mut waitlist = Waitlist::default();
    let mut zone_ids = ZoneIds::default();
    loop {
        let due = waitlist.next_due();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.changed() => {}
            () = sleep_until(due) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(deps.window) => {}
        }
        let mut names = changes.take();
        names.extend(waitlist.due(Instant::now()));
        pass(deps, names, &mut waitlist, &mut zone_ids, stop).await?;
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// One look at the Nodes of these names.
async fn pass(
    deps: &Deps,
    names: BTreeSet<String>,
    waitlist: &mut Waitlist,
    zone_ids: &mut ZoneIds,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let work = sort(deps, names, waitlist);
    let repairs = each(deps, stop, work.repairs, |node| async move {
        let _working = deps.metrics.queue(QUEUE).start(node.name());
        let operations = plan::repair_labels(&node);
        let written = apply::patch(deps, &node, Part::Node, &operations).await;
        (node, written.map_err(Waiting::Write))
    });
    let mut outcomes = repairs.await;
    if !work.tainted.is_empty() {
        let Some(seen) = unless(
            stop,
            observe::instances(deps, work.tainted, Lane::Initialize, NEW_MAX_AGE),
        )
        .await
        else {
            return Ok(());
        };
        outcomes.extend(initialize_all(deps, seen, zone_ids, stop).await);
    }
    settle(deps, outcomes, waitlist).await
}

struct Work {
    tainted: Vec<Arc<NodeView>>,
    repairs: Vec<Arc<NodeView>>,
}

/// Which of these Nodes want what, now.
fn sort(deps: &Deps, names: BTreeSet<String>, waitlist: &mut Waitlist) -> Work {
    let mut work = Work {
        tainted: Vec::new(),
        repairs: Vec::new(),
    };
    let now = Instant::now();
    let queue = deps.metrics.queue(QUEUE);
    for name in names {
        match deps.nodes.node(&name) {
            None => {
                queue.forget(&name);
                waitlist.forget(&name);
            }
            Some(node) if !waitlist.may_try(&name, node.uid(), now) => {}
            Some(node) if node.has_taint(taints::UNINITIALIZED) => work.tainted.push(node),
            Some(node) if !plan::repair_labels(&node).is_empty() => work.repairs.push(node),
            Some(_) => waitlist.forget(&name),
        }
    }
    let wanting = work.tainted.iter().chain(&work.repairs);
    wanting.for_each(|node| queue.add(node.name()));
    work
}

type Outcome = (Arc<NodeView>, Result<(), Waiting>);

async fn initialize_all(
    deps: &Deps,
    seen: Vec<Seen>,
    zone_ids: &mut ZoneIds,
    stop: &CancellationToken,
) -> Vec<Outcome> {
    let (zones, failed) = &zone_ids.covering(deps.ec2.as_ref(), &seen).await;
    each(deps, stop, seen, |(node, instance)| async move {
        let _working = deps.metrics.queue(QUEUE).start(node.name());
        let planned = instance.and_then(|instance| desired::desired(&node, &instance, &deps.place, zones));
        let planned = planned.map_err(|waiting| match (waiting, failed) {
            (Waiting::UnknownZone(_), Some(error)) => Waiting::Cloud(error.clone()),
            (waiting, _) => waiting,
        });
        let done = match planned.map(|desired| plan::initialize(&node, &desired)) {
            Ok(plan) => apply::initialize(deps, &node, &plan).await.map_err(Waiting::Write),
            Err(waiting) => Err(waiting),
        };
        (node, done)
    })
    .await
}

/// Runs `work` for each item, as many at a time as Nodes may be initialized; none is begun after `stop`, and all
/// that were begun are finished.
async fn each<I, F>(deps: &Deps, stop: &CancellationToken, items: Vec<I>, work: impl Fn(I) -> F) -> Vec<Outcome>
where
    F: Future<Output = Outcome>,
{
    futures::stream::iter(items)
        .take_while(|_| std::future::ready(!stop.is_cancelled()))
        .map(work)
        .buffer_unordered(deps.initializations.max(1))
        .collect()
        .await
}

/// A question to AWS may be dropped at the end, a write may not.
async fn unless<T>(stop: &CancellationToken, question: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = stop.cancelled() => None,
        answer = question => Some(answer),
    }
}

/// Takes note of what came out: who is done, who waits and why.
async fn settle(deps: &Deps, outcomes: Vec<Outcome>, waitlist: &mut Waitlist) -> Result<(), Error> {
    let now = Instant::now();
    for (node, outcome) in outcomes {
        let waiting = match outcome {
            Ok(()) => {
                waitlist.settled(node.name(), node.uid(), now);
                continue;
            }
            Err(Waiting::Write(WriteError::Gone)) => {
                waitlist.forget(node.name());
                continue;
            }
            Err(Waiting::Write(WriteError::NotLeader(lost))) => return Err(lost.into()),
            Err(waiting) => waiting,
        };
        deps.metrics.queue(QUEUE).retry();
        let say = waitlist.failed(node.name(), node.uid(), waiting.reason(), now);
        if say.log {
            let (reason, error) = (waiting.reason(), apply::chain(&waiting));
            tracing::warn!(node = node.name(), reason, error, "the Node waits");
        }
        if say.event {
            apply::report_waiting(deps, &node, &waiting);
        }
    }
    deps.metrics.nodes_waiting.clear();
    for (reason, count) in waitlist.by_reason() {
        deps.metrics
            .nodes_waiting
            .get_or_create(&ReasonLabel { reason })
            .set(count);
    }
    Ok(())
}

/// Addresses of all Nodes: at once, then every period.
async fn refresh_until(deps: &Deps, stop: &CancellationToken) -> Result<(), Error> {
    let mut rewrites = Rewrites::default();
    let mut ticks = tokio::time::interval(deps.refresh_period.max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        refresh(deps, &mut rewrites, stop).await?;
    }
}

async fn refresh(deps: &Deps, rewrites: &mut Rewrites, stop: &CancellationToken) -> Result<(), Error> {
    let nodes = deps.nodes.snapshot();
    let uids: BTreeSet<&str> = nodes.iter().map(|node| node.uid()).collect();
    rewrites.retain(&uids);
    let initialized = nodes
        .iter()
        .filter(|node| !node.has_taint(taints::UNINITIALIZED))
        .cloned()
        .collect();
    let Some(seen) = unless(
        stop,
        observe::instances(deps, initialized, Lane::Refresh, REFRESH_MAX_AGE),
    )
    .await
    else {
        return Ok(());
    };
    let mut writes = Vec::new();
    for (node, instance) in seen {
        let wanted = instance.and_then(|instance| desired::addresses(&node, &instance, &deps.place.families));
        match wanted.map(|wanted| rewrites.decide(&node, &wanted, *deps.kubelets_external.borrow())) {
            Ok(Refresh::Keep | Refresh::Stop { first: false }) | Err(Waiting::Foreign(_)) => {}
            Ok(Refresh::Stop { first: true }) => apply::report_stopped(deps, &node),
            Ok(Refresh::Write(patch)) => writes.push((node, patch)),
            Err(waiting) => {
                let error = apply::chain(&waiting);
                tracing::info!(node = node.name(), error, "the Node's addresses are not refreshed");
            }
        }
    }
    for (node, written) in write_addresses(deps, writes, stop).await {
        match written {
            Ok(()) => rewrites.written(&node),
            Err(WriteError::NotLeader(lost)) => return Err(lost.into()),
            Err(WriteError::Gone) => {}
            Err(error) => tracing::warn!(
                node = node.name(),
                error = apply::chain(&error),
                "addresses not written"
            ),
        }
    }
    deps.metrics
        .address_rewrites_stopped
        .set(i64::try_from(rewrites.stopped()).unwrap_or(i64::MAX));
    Ok(())
}

type Written = (Arc<NodeView>, Result<(), WriteError>);

async fn write_addresses(
    deps: &Deps,
    writes: Vec<(Arc<NodeView>, Vec<serde_json::Value>)>,
    stop: &CancellationToken,
) -> Vec<Written> {
    futures::stream::iter(writes)
        .take_while(|_| std::future::ready(!stop.is_cancelled()))
        .map(|(node, patch)| async move {
            tracing::info!(node = node.name(), "writing the Node's addresses");
            let written = apply::patch(deps, &node, Part::Status, &patch).await;
            (node, written)
        })
        .buffer_unordered(deps.refreshes.max(1))
        .collect()
        .await
}
