//! What is under way, and what follows from what came out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_aws::{Error as AwsError, InstanceId, Kind};
use outrigger_leader::NotLeader;
use outrigger_shared::provider_id::ProviderId;
use outrigger_shared::tags;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::apply::{self, Applied, TagResult};
use super::deps::Deps;
use super::error::Error;
use super::label;
use super::queue::{Action, ObservedNode, WorkQueue};
use crate::aws_errors;
use crate::backoff::Backoff;
use crate::event_dedup::EventDedup;
use crate::events::{EventType, about_cluster};
use crate::instances::{Answer, Priority};
use crate::metrics::{Queue, Working};
use crate::node_cache::NodeView;
use crate::node_write::WriteError;
use crate::token_bucket::TokenBucket;

/// Most resources of one call, as the incumbent has it. EC2 allows more.
const MAX_BATCH: usize = 50;
/// How long EC2 may not know a new Node's instance, from the Node's creation on, as the incumbent has it.
const GRACE: Duration = Duration::from_secs(300);
/// First and longest backoff_all of all calls, when AWS refuses them for a reason that concerns them all.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// At this failure in a row the incumbent gives up.
const INCUMBENT_TRIES: u32 = 10;
/// This part of the time between two searches for lost tags is how old an answer may be: five minutes of half an hour.
const DRIFT_AGE: u32 = 6;
/// How old an answer about missing instances may be.
const MISSING_AGE: Duration = Duration::from_secs(5);

/// The same reason is logged again after so long.
const LOG_AGAIN: Duration = Duration::from_secs(60);

type Outcome = (Result<Applied, NotLeader>, Vec<(Arc<NodeView>, Result<(), WriteError>)>);

/// The state of a run.
pub(super) struct Worker {
    deps: Deps,
    work: WorkQueue,
    rate_limiter: Option<TokenBucket>,
    /// All calls wait for one and the same reason.
    backoff_all: Backoff<()>,
    /// Whether the last call was refused for such a reason.
    is_refused: bool,
    /// When each reason of a failure was logged last.
    logged: HashMap<String, Instant>,
    /// Which denied actions were reported by an Event.
    reported: EventDedup,
    in_flight: JoinSet<Outcome>,
    /// When AWS last set or removed tags: what EC2 logged before is no evidence of lost tags.
    last_written: Option<Instant>,
    queue: Queue,
}

/// `--tagging-controller-rate-limit` and `-burst-limit`. `None` without a limit: both must be above zero.
fn rate_limiter(deps: &Deps) -> Option<TokenBucket> {
    let has_limit = deps.rate_limit > 0.0 && deps.burst_limit > 0;
    has_limit.then(|| TokenBucket::full(deps.rate_limit, deps.burst_limit.into(), Instant::now()))
}

/// The instance of a Node. A provider ID that is no instance's is left to others, as one that is still missing is.
pub(super) fn instance(node: &NodeView) -> Option<InstanceId> {
    match node.provider_id().map(ProviderId::parse) {
        Some(Ok(ProviderId::Instance(id))) => Some(InstanceId::new(id.as_str())),
        _ => None,
    }
}

impl Worker {
    pub(super) fn new(deps: Deps) -> Self {
        let queue = deps.metrics.queue(super::QUEUE);
        Self {
            work: WorkQueue::default(),
            rate_limiter: rate_limiter(&deps),
            backoff_all: Backoff::new(BACKOFF.0, BACKOFF.1),
            is_refused: false,
            logged: HashMap::new(),
            reported: EventDedup::default(),
            in_flight: JoinSet::new(),
            last_written: None,
            queue,
            deps,
        }
    }

    /// Looks at a Node that the cache says has changed.
    pub(super) fn reconcile(&mut self, name: &str) {
        let Some(node) = self.deps.nodes.node(name) else {
            self.work.gone(name);
            return;
        };
        let instance = instance(&node);
        self.work.observe(ObservedNode {
            name,
            instance: instance.as_ref(),
            labelled: node.label(label::LABEL) == Some(self.deps.label.as_str()),
        });
    }

    /// When there is something to do next, beside changes and answers.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        if let Some(end) = self.backoff_all.next_due(now) {
            return Some(end);
        }
        let retry = self.work.next_due(now);
        if !self.work.has_work(now) || self.in_flight.len() >= self.deps.calls_at_once {
            return retry;
        }
        let rate_limiter = self
            .rate_limiter
            .as_ref()
            .map(|rate_limiter| now + rate_limiter.wait().max(Duration::from_millis(1)));
        retry.into_iter().chain(rate_limiter).min()
    }

    /// Starts what is to be done, as much as may be under way.
    pub(super) fn start_calls(&mut self) {
        let now = Instant::now();
        while self.in_flight.len() < self.deps.calls_at_once && self.backoff_all.may_try(&(), now) {
            // While the reason for a backoff_all may last, one call finds out.
            if self.is_refused && !self.in_flight.is_empty() {
                return;
            }
            let most = if self.deps.batching { MAX_BATCH } else { 1 };
            let most = self
                .rate_limiter
                .as_mut()
                .map_or(most, |rate_limiter| most.min(rate_limiter.available(now)));
            let Some(batch) = (most > 0).then(|| self.work.take(most, now)).flatten() else {
                return;
            };
            if let Some(rate_limiter) = &mut self.rate_limiter {
                rate_limiter.take(u32::try_from(batch.instances.len()).unwrap_or(u32::MAX));
            }
            let working: Vec<Working> = batch.instances.iter().map(|id| self.queue.start(id.as_str())).collect();
            let (deps, names) = (self.deps.clone(), self.names(&batch.instances));
            self.in_flight.spawn(async move {
                let applied = apply::apply(&deps, batch).await;
                let labelled = label_done(&deps, &applied, names).await;
                drop(working);
                (applied, labelled)
            });
        }
    }

    fn names(&self, ids: &[InstanceId]) -> Vec<(InstanceId, Vec<String>)> {
        ids.iter().map(|id| (id.clone(), self.work.nodes_of(id))).collect()
    }

    /// Waits for a call to end; `None` when there is none.
    pub(super) async fn next_applied(&mut self) -> Option<Result<Outcome, JoinError>> {
        self.in_flight.join_next().await
    }

    /// What follows from a call.
    pub(super) fn settle(&mut self, outcome: Result<Outcome, JoinError>) -> Result<(), Error> {
        let (applied, labelled) = outcome.map_err(Error::Task)?;
        let Applied { action, results } = applied?;
        let mut refused = Vec::new();
        for (id, result) in results {
            match (result, action) {
                (TagResult::Done, _) => {
                    self.last_written = Some(Instant::now());
                    self.recovered();
                    self.work.done(&id, action);
                }
                // There is nothing to take tags off.
                (TagResult::Missing | TagResult::Invalid | TagResult::NotInCluster, Action::Untag) => {
                    self.work.done(&id, action);
                }
                (TagResult::NotInCluster, Action::Tag) => {
                    self.warn_not_in_cluster(&id);
                    self.work.missing(&id, self.grace_end(&id));
                }
                (TagResult::Missing, Action::Tag) => {
                    self.deps.counts.failed();
                    self.work.missing(&id, self.grace_end(&id));
                }
                (TagResult::Invalid, Action::Tag) => {
                    self.deps.counts.failed();
                    self.work.abandoned(&id);
                    refused.push(id);
                }
                (TagResult::Failed(error), _) => self.failed(&id, &error),
            }
        }
        refused.extend(self.work.give_up(Instant::now()));
        log_abandoned(&refused);
        labelled
            .into_iter()
            .try_for_each(|(node, written)| self.labelled(&node, written))
    }

    fn warn_not_in_cluster(&self, id: &InstanceId) {
        let nodes = self.work.nodes_of(id);
        let tag = tags::cluster_key(self.deps.instances.cluster_id());
        tracing::warn!(instance = %id, ?nodes, tag, "the instance of a Node does not have the cluster's tag: not tagging it");
    }

    /// Until when EC2 may not know the instance, or it may lack the cluster's tag: five minutes after its newest Node was made.
    fn grace_end(&self, id: &InstanceId) -> Instant {
        let now = Timestamp::now();
        let age = |name: &String| {
            let node = self.deps.nodes.node(name)?;
            let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
            Some(Duration::try_from(now.duration_since(created)).unwrap_or_default())
        };
        let youngest = self.work.nodes_of(id).iter().filter_map(age).min().unwrap_or_default();
        Instant::now() + GRACE.saturating_sub(youngest)
    }

    fn failed(&mut self, id: &InstanceId, error: &AwsError) {
        let now = Instant::now();
        self.deps.counts.failed();
        self.queue.retry();
        if matches!(error.kind(), Kind::Throttled | Kind::AccessDenied | Kind::Transport) {
            // One failure pauses all, however many instances its batch had.
            if self.backoff_all.may_try(&(), now) && self.backoff_all.failed(&(), now) == INCUMBENT_TRIES {
                self.deps.counts.exhausted();
            }
            self.is_refused = true;
            self.work.requeue(id);
        } else if self.work.failed(id, now) == INCUMBENT_TRIES {
            self.deps.counts.exhausted();
        }
        let cause = format!(
            "{} {:?} {}",
            error.operation(),
            error.kind(),
            error.code().unwrap_or_default()
        );
        let is_new = |logged: &Instant| now.duration_since(*logged) >= LOG_AGAIN;
        if self.logged.get(&cause).is_none_or(is_new) {
            tracing::warn!(instance = %id, %error, "tagging failed; it is tried again");
            self.logged.insert(cause, now);
        }
        if error.kind() == Kind::AccessDenied {
            self.report_denied(id, error);
        }
    }

    /// Emits one Event for each denied action, however many Nodes it concerns.
    fn report_denied(&mut self, id: &InstanceId, error: &AwsError) {
        if !self.reported.is_new(error.operation(), "", Instant::now()) {
            return;
        }
        let message = format!(
            "The tags of --tags cannot be brought up to date for instance {id} of Node {}, and for others: {}",
            self.work.node_of(id).unwrap_or("(unknown)"),
            aws_errors::denied_ec2(error)
        );
        let (events, permit) = (&self.deps.events, &self.deps.permit);
        events.record(
            permit,
            &about_cluster(),
            EventType::Warning,
            "TaggingActionDenied",
            &message,
        );
    }

    fn recovered(&mut self) {
        self.backoff_all.forget(&());
        if std::mem::take(&mut self.is_refused) {
            tracing::info!("tagging works again");
        }
    }

    fn labelled(&mut self, node: &NodeView, written: Result<(), WriteError>) -> Result<(), Error> {
        match written {
            Ok(()) => {
                if node.label(label::LABEL).is_none()
                    && let Some(created) = &node.metadata.creation_timestamp
                {
                    self.deps
                        .counts
                        .first(Timestamp::now().duration_since(created.0).as_secs_f64());
                }
            }
            Err(WriteError::Gone) => {}
            Err(WriteError::NotLeader(lost)) => return Err(lost.into()),
            Err(error) => {
                self.deps.counts.failed();
                let failure = &error as &dyn std::error::Error;
                tracing::warn!(
                    node = node.name(),
                    error = failure,
                    "tagged, but the label was not written; it is tried again"
                );
                if let Some(id) = instance(node) {
                    self.work.repair(&id);
                    self.work.failed(&id, Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Whether EC2 is awaited to know some instances.
    pub(super) fn awaits_any(&self) -> bool {
        !self.work.awaited().is_empty()
    }

    /// Asks whether EC2 knows them by now: one describe for all, not a try to tag each.
    pub(super) async fn check_missing(&mut self) {
        let awaited = self.work.awaited();
        let answers = self
            .deps
            .instances
            .by_id(&awaited, Priority::Background, MISSING_AGE)
            .await;
        for id in &awaited {
            if matches!(answers.get(id), Some(Answer::Found(found)) if self.deps.instances.in_cluster(found)) {
                self.work.repair(id);
            }
        }
        log_abandoned(&self.work.give_up(Instant::now()));
    }

    /// Looks for tags that were lost, and for instances that appeared against all hope, once in `period`.
    pub(super) async fn repair_drift(&mut self, period: Duration) {
        let settled = self.work.settled();
        let since_write = self.last_written.map_or(Duration::MAX, |written| written.elapsed());
        // Younger than the write, so not of the same moment either.
        let since_write = since_write.saturating_sub(Duration::from_millis(1));
        let age = since_write.min(period / DRIFT_AGE);
        let answers = self.deps.instances.by_id(&settled, Priority::Background, age).await;
        let mut lost = 0;
        for id in &settled {
            let Some(Answer::Found(found)) = answers.get(id) else {
                continue;
            };
            if !self.deps.instances.in_cluster(found) {
                continue;
            }
            let has_all = self
                .deps
                .tags
                .iter()
                .all(|(key, value)| found.tags.get(key) == Some(value));
            if !has_all || self.work.is_abandoned(id) {
                lost += 1;
                self.work.repair(id);
            }
        }
        if lost > 0 {
            tracing::warn!(instances = lost, "tags were lost; they are set again");
        }
    }

    /// Waits for all that is under way.
    pub(super) async fn finish(mut self) {
        while self.in_flight.join_next().await.is_some() {}
    }
}

/// Labels the Nodes whose instances AWS logged are tagged, those that are still there.
async fn label_done(
    deps: &Deps,
    applied: &Result<Applied, NotLeader>,
    names: Vec<(InstanceId, Vec<String>)>,
) -> Vec<(Arc<NodeView>, Result<(), WriteError>)> {
    let Ok(Applied {
        action: Action::Tag,
        results,
    }) = applied
    else {
        return Vec::new();
    };
    let is_done = |id: &InstanceId| {
        results
            .iter()
            .any(|(other, result)| other == id && matches!(result, TagResult::Done))
    };
    let nodes = names
        .into_iter()
        .filter(|(id, _)| is_done(id))
        .flat_map(|(_, names)| names);
    let nodes = nodes.filter_map(|name| deps.nodes.node(&name));
    let unlabelled = nodes.filter(|node| node.label(label::LABEL) != Some(deps.label.as_str()));
    apply::set_labels(deps, unlabelled.collect()).await
}

/// One line, whatever their number.
fn log_abandoned(ids: &[InstanceId]) {
    if let Some(first) = ids.first() {
        let instances = ids.len();
        tracing::warn!(instances, %first, "EC2 does not list these instances of Nodes, or they do not have the cluster's tag: they stay untagged");
    }
}
