//! The worker: calls in flight, and their results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_aws::{Error as AwsError, InstanceId, Kind};
use outrigger_leader::NotLeader;
use outrigger_shared::tags;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::Deps;
use super::apply::{self, Applied, TagResult};
use super::label;
use super::queue::{Action, ObservedNode, WorkQueue};
use crate::aws_errors;
use crate::backoff::Backoff;
use crate::events::{EventDedup, about_cluster};
use crate::instances::{Answer, Priority, claimed};
use crate::metrics::{Queue, Working};
use crate::node_cache::NodeView;
use crate::node_write::WriteError;
use crate::token_bucket::TokenBucket;

/// Maximum resources of a call, as in cloud-provider-aws. EC2 allows more.
const MAX_BATCH: usize = 50;
/// How long after a Node's creation EC2 may not list its instance, as in cloud-provider-aws.
const GRACE: Duration = Duration::from_secs(300);
/// First and longest backoff of all calls, after a failure that concerns them all.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// cloud-provider-aws stops retrying at this failure in a row.
const INCUMBENT_TRIES: u32 = 10;
/// The maximum age of a description is this part of the resync period: five minutes of half an hour.
const DRIFT_AGE: u32 = 6;
/// Maximum age of descriptions of missing instances.
const MISSING_AGE: Duration = Duration::from_secs(5);

/// Time after which the same reason is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);

pub(super) type Outcome = (Result<Applied, NotLeader>, Vec<(Arc<NodeView>, Result<(), WriteError>)>);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the tagging controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
    /// A defect: a task panicked.
    #[error("a call of the tagging controller ended")]
    Task(#[source] JoinError),
}

pub(super) struct Worker {
    deps: Deps,
    work: WorkQueue,
    rate_limiter: Option<TokenBucket>,
    backoff_all: Backoff<()>,
    /// Whether the last call was refused for such a reason.
    is_refused: bool,
    /// When each reason of a failure was last logged.
    logged: HashMap<String, Instant>,
    /// Which denied actions were reported by an Event.
    reported: EventDedup,
    pub(super) in_flight: JoinSet<Outcome>,
    /// When AWS last set or removed tags: an earlier description is no evidence of lost tags.
    last_written: Option<Instant>,
    queue: Queue,
}

/// `--tagging-controller-rate-limit` and `-burst-limit`. `None` without a limit: both must be above zero.
fn rate_limiter(rate: f64, burst: u32, now: Instant) -> Option<TokenBucket> {
    let has_limit = rate > 0.0 && burst > 0;
    has_limit.then(|| TokenBucket::full(rate, burst.into(), now))
}

impl Worker {
    pub(super) fn new(deps: Deps) -> Self {
        let queue = deps.metrics.queue(super::QUEUE);
        Self {
            work: WorkQueue::default(),
            rate_limiter: rate_limiter(deps.rate_limit, deps.burst_limit, Instant::now()),
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

    pub(super) fn reconcile(&mut self, name: &str) {
        let Some(node) = self.deps.nodes.node(name) else {
            self.work.gone(name);
            return;
        };

        let instance = claimed(&node);
        self.work.observe(ObservedNode {
            name,
            instance: instance.as_ref(),
            labelled: node.label(label::LABEL) == Some(self.deps.label.as_str()),
        });
    }

    /// When to reconcile next, apart from changes and results.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        if let Some(end) = self.backoff_all.next_due(now) {
            return Some(end);
        }

        let retry = self.work.next_due(now);
        if !self.work.has_work(now) || self.in_flight.len() >= self.deps.calls_at_once {
            return retry;
        }

        let soonest = |limiter: &TokenBucket| now + limiter.wait().max(Duration::from_millis(1));
        retry.into_iter().chain(self.rate_limiter.as_ref().map(soonest)).min()
    }

    pub(super) fn start_calls(&mut self) {
        let now = Instant::now();
        while self.in_flight.len() < self.deps.calls_at_once && self.backoff_all.may_try(&(), now) {
            // While the failure may last, a single call probes.
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
            let nodes_of = |id: &InstanceId| (id.clone(), self.work.nodes_of(id));
            let (deps, names) = (self.deps.clone(), batch.instances.iter().map(nodes_of).collect());
            self.in_flight.spawn(async move {
                let applied = apply::apply(&deps, batch).await;
                let labelled = label_done(&deps, &applied, names).await;
                drop(working);
                (applied, labelled)
            });
        }
    }

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
                // There are no tags to remove.
                (TagResult::Missing | TagResult::Invalid | TagResult::NotInCluster, Action::Untag) => {
                    self.work.done(&id, action);
                }
                (TagResult::NotInCluster, Action::Tag) => {
                    let (nodes, cluster_id) = (self.work.nodes_of(&id), self.deps.instances.cluster_id());
                    let tag = tags::cluster_key(cluster_id);
                    tracing::warn!(instance = %id, ?nodes, tag, "not tagging the instance of a Node: it does not have the cluster's tag");
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

    /// Until when EC2 may not list the instance, or it may lack the cluster's tag: [`GRACE`] after the creation of its
    /// newest Node.
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
            // One backoff, however many instances the batch had.
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
            tracing::warn!(instance = %id, %error, "failed to tag the instance; retrying");
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
            "The tags of --tags cannot be written for instance {id} of Node {}, and for other instances: {}",
            self.work.node_of(id).unwrap_or("(unknown)"),
            aws_errors::denied_ec2(error)
        );
        let Deps { events, permit, .. } = &self.deps;
        events.warn(permit, &about_cluster(), "TaggingActionDenied", &message);
    }

    fn recovered(&mut self) {
        self.backoff_all.forget(&());
        if std::mem::take(&mut self.is_refused) {
            tracing::info!("tagging recovered");
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
                    "tagged the instance, but failed to label the Node; retrying"
                );

                if let Some(id) = claimed(node) {
                    self.work.repair(&id);
                    self.work.failed(&id, Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Whether some instances are not listed by EC2 yet.
    pub(super) fn awaits_any(&self) -> bool {
        !self.work.awaited().is_empty()
    }

    /// Describes all missing instances with one call, instead of an attempt to tag each.
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

    /// Repairs lost tags, and tags abandoned instances that EC2 lists by now.
    pub(super) async fn repair_drift(&mut self, period: Duration) {
        let settled = self.work.settled();
        let since_write = self.last_written.map_or(Duration::MAX, |written| written.elapsed());
        // Strictly younger than the last write.
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
            tracing::warn!(instances = lost, "repairing lost tags");
        }
    }
}

/// Labels the Nodes of tagged instances, if they still exist.
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

fn log_abandoned(ids: &[InstanceId]) {
    if let Some(first) = ids.first() {
        let instances = ids.len();
        tracing::warn!(instances, %first, "not tagging instances of Nodes: EC2 does not list them, or they do not have the cluster's tag");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_both_numbers_there_is_no_limit() {
        let now = Instant::now();
        assert!(rate_limiter(0.0, 3, now).is_none());
        assert!(rate_limiter(2.0, 0, now).is_none());
        assert!(rate_limiter(2.0, 3, now).is_some());
    }
}
