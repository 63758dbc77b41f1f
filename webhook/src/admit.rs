//! Handles one review: parse, gather input, decide, answer.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_shared::migration::{CloudProviderMigration, Target};
use outrigger_shared::work::WorkBudget;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::callers::Caller;
use crate::decide::{
    self, Decision, Input, Migration, RequestedPhase, Shortage, Validation, ValidationOutcome, decide, validate,
};
use crate::decision_threads::DecisionThreads;
use crate::memory_budget::MemoryBudget;
use crate::metrics::Metrics;
use crate::review::{self, Denial, Incoming, Malformed, Request, Response, Review, Subject, Verdict};
use crate::view::{Clusters, Labels, MigrationSnapshot, Migrations, Namespaces};

#[derive(Debug)]
pub struct Reviewer {
    pub migrations: Arc<Migrations>,
    pub namespaces: Arc<Namespaces>,
    pub clusters: Clusters,
    /// The webhook changes nothing in its own namespace.
    pub own_namespace: String,
    pub metrics: Arc<Metrics>,
}

/// The call is answered with an HTTP error instead of a review; the API server then applies the failure policy.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// No list of migrations yet. To answer "unchanged" would be wrong: a migration may select the object.
    #[error("the migrations are not known yet: the first list from the management cluster has not succeeded")]
    NotReady,
    #[error("no memory for the objects of this request: other requests use all of it")]
    NoMemory,
}

impl NotAdmitted {
    /// The label in metrics.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Malformed(error) => error.class(),
            Self::NotReady => "not_ready",
            Self::NoMemory => "no_memory",
        }
    }
}

/// The webhook that the API server calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Mutating: changes the object, never refuses it.
    Mutate,
    /// Validating: may refuse the object.
    Validate,
}

/// A review that is decided, or waits for what the clusters know.
enum Step {
    Answered(Response),
    Waiting(Box<Waiting>),
}

struct Waiting {
    review: Review,
    work: WorkBudget,
    /// Memory for the objects.
    objects: Option<OwnedSemaphorePermit>,
}

/// Knowledge of a decision beside the review.
struct Situation {
    endpoint: Endpoint,
    path: Option<String>,
    migrations: Arc<MigrationSnapshot>,
    namespace_labels: Option<Labels>,
}

impl Reviewer {
    /// Answers the review in `body`, sent to `/mutate` or `/validate` (`path` is `None`), or to `/mutate/PATH` or
    /// `/validate/PATH`. Memory for its objects is taken from `budget`. It is read and decided on `threads`, in the caller's turn.
    ///
    /// # Errors
    /// [`NotAdmitted`] when the body holds no request with a UID, before the first list of migrations, or when memory
    /// is short.
    pub async fn admit(
        self: &Arc<Self>,
        (threads, caller): (&DecisionThreads, Caller),
        (endpoint, path): (Endpoint, Option<&str>),
        body: Bytes,
        budget: MemoryBudget,
    ) -> Result<Response, NotAdmitted> {
        let mut situation = Situation {
            endpoint,
            path: path.map(str::to_owned),
            migrations: self.migrations.known().ok_or(NotAdmitted::NotReady)?,
            namespace_labels: None,
        };
        let first = Situation {
            endpoint,
            path: situation.path.clone(),
            migrations: Arc::clone(&situation.migrations),
            namespace_labels: None,
        };
        let reviewer = Arc::clone(self);
        let step = threads.run(caller, move || reviewer.read(first, &body, budget)).await?;
        let mut waiting = match step {
            Step::Answered(response) => return Ok(response),
            Step::Waiting(waiting) => waiting,
        };

        let Waiting { review, work, .. } = &mut *waiting;
        let request = &review.request;
        situation.migrations = self.with_requested_phase(request, situation.migrations).await;
        if work.run(|| self.lacks_namespace(&situation, request)) {
            situation.namespace_labels = self.namespaces.labels(&request.namespace).await;
        }

        let reviewer = Arc::clone(self);
        Ok(threads.run(caller, move || reviewer.finish(&situation, *waiting)).await)
    }

    /// Reads a review, and decides it unless it has to wait.
    fn read(&self, mut situation: Situation, body: &[u8], budget: MemoryBudget) -> Result<Step, NotAdmitted> {
        let mut work = WorkBudget::new(decide::MAX_WORK);
        let incoming = work.run(|| review::parse(body, &budget))?;
        if budget.is_shared_memory_exhausted() {
            return Err(NotAdmitted::NoMemory);
        }

        let review = match incoming {
            Incoming::Unreadable(reply, reason) => {
                self.metrics.error(reason.class());
                let Subject { kind, namespace, name } = reply.subject();
                tracing::warn!(kind, namespace, name, %reason, "cannot read request; object allowed unchanged");
                return Ok(Step::Answered(reply.pass_unread(&reason)));
            }
            Incoming::Review(review) => *review,
        };
        let request = &review.request;
        let requested = request.object.as_ref();
        let requested = requested.and_then(|object| RequestedPhase::of(object, request.old_object.as_ref()));
        situation.namespace_labels = self.namespaces.cached(&request.namespace);
        let waits = requested.is_some() || work.run(|| self.lacks_namespace(&situation, request));
        let waiting = Waiting {
            review,
            work,
            objects: budget.close(),
        };
        if waits {
            return Ok(Step::Waiting(Box::new(waiting)));
        }

        Ok(Step::Answered(self.finish(&situation, waiting)))
    }

    /// Whether a rule and a target may be about the object, if the labels of its namespace were known. The namespaces of a
    /// migration's path are those of another cluster.
    fn lacks_namespace(&self, situation: &Situation, request: &Request) -> bool {
        if situation.path.is_some() {
            return false;
        }
        match situation.endpoint {
            Endpoint::Mutate => self.decide_with(situation, request, decide::lacks_namespace),
            Endpoint::Validate => self.decide_with(situation, request, decide::validation_lacks_namespace),
        }
    }

    fn finish(&self, situation: &Situation, waiting: Waiting) -> Response {
        let Waiting {
            review: Review { request, reply },
            mut work,
            objects: _objects,
        } = waiting;

        match situation.endpoint {
            Endpoint::Mutate => {
                let decision = work.run(|| self.decide_with(situation, &request, decide));
                self.report(&request, &decision);
                reply.allow(Verdict {
                    patch: decision.patch,
                    warnings: decision.warnings,
                    audit: decision.audit_annotations,
                })
            }
            Endpoint::Validate => {
                let validation = work.run(|| self.decide_with(situation, &request, validate));
                self.report_validation(&request, &validation);
                answer(reply, validation)
            }
        }
    }

    /// The migrations, with the phase that the operator requests if the watch delivers it in time.
    async fn with_requested_phase(&self, request: &Request, known: Arc<MigrationSnapshot>) -> Arc<MigrationSnapshot> {
        let object = request.object.as_ref();
        let requested = object.and_then(|object| RequestedPhase::of(object, request.old_object.as_ref()));
        let Some(RequestedPhase { migration, phase }) = requested else {
            return known;
        };

        let newer = self.migrations.known_with_phase(migration, phase).await;
        newer.unwrap_or(known)
    }

    fn decide_with<T: Default>(
        &self,
        situation: &Situation,
        request: &Request,
        rule: impl FnOnce(&Input<'_>) -> T,
    ) -> T {
        let (path, known, now) = (situation.path.as_deref(), &situation.migrations, Instant::now());
        let migrations: Vec<Migration<'_>> = known
            .iter()
            .map(|migration| Migration {
                prepared: migration.is_prepared() && !self.is_outdated(migration, now),
                ..Migration::from(migration)
            })
            .collect();
        let (Some(object), false) = (&request.object, migrations.is_empty()) else {
            return T::default();
        };

        let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        rule(&Input {
            operation: operation(request.operation),
            group: &request.kind.group,
            kind: &request.kind.kind,
            subresource: &request.sub_resource,
            namespace,
            namespace_labels: situation.namespace_labels.as_deref(),
            name: &request.name,
            object,
            old_object: request.old_object.as_ref(),
            migrations: &migrations,
            path_migration: path,
            own_namespace: Some(&self.own_namespace),
            manager_fresh: match request.kind.group == "outrigger.dev" {
                true => self.manager_of(known, &request.name, now),
                false => self.clusters.manager_fresh(path, now),
            },
        })
    }

    /// Whether a manager runs in the cluster of the migration `name`.
    fn manager_of(&self, known: &MigrationSnapshot, name: &str, now: Instant) -> Option<bool> {
        let migration = known
            .iter()
            .find(|migration| migration.metadata.name.as_deref() == Some(name))?;
        self.clusters.of_migration(name, is_hosted(migration), now)
    }

    /// The status is of an earlier spec, and no manager runs that would write a new one. Its conditions may be of an
    /// earlier migration forwards and back.
    fn is_outdated(&self, migration: &CloudProviderMigration, now: Instant) -> bool {
        let name = migration.metadata.name.as_deref().unwrap_or_default();
        let observed = migration.status.as_ref().and_then(|status| status.observed_generation);
        observed.is_some_and(|observed| Some(observed) < migration.metadata.generation)
            && self.clusters.of_migration(name, is_hosted(migration), now) == Some(false)
    }

    fn report_validation(&self, request: &Request, validation: &Validation) {
        self.metrics.validation(&request.kind.kind, validation.outcome);
        self.report_shortage(validation.shortage);
        if !matches!(
            validation.outcome,
            ValidationOutcome::Warned | ValidationOutcome::Denied
        ) {
            return;
        }

        tracing::info!(
            kind = request.kind.kind,
            namespace = request.namespace,
            name = request.name,
            dry_run = request.dry_run,
            decision = validation.outcome.as_str(),
            message = validation.message,
            warnings = ?validation.warnings,
            "validated"
        );
    }

    fn report_shortage(&self, shortage: Option<Shortage>) {
        if shortage == Some(Shortage::Work) {
            self.metrics.error(review::TOO_MUCH_WORK);
        }
    }

    fn report(&self, request: &Request, decision: &Decision) {
        let phase = decision.audit_annotations.get("phase").map(String::as_str);
        self.metrics.review(&request.kind.kind, decision.outcome, phase);
        self.report_shortage(decision.shortage);
        if decision.outcome == decide::Outcome::NotOurs {
            return;
        }

        tracing::info!(
            kind = request.kind.kind,
            namespace = request.namespace,
            name = request.name,
            dry_run = request.dry_run,
            decision = decision.outcome.as_str(),
            changes = decision.patch.len(),
            reasons = ?decision.reasons,
            "reviewed"
        );
    }
}

fn is_hosted(migration: &CloudProviderMigration) -> bool {
    migration.spec.targets.iter().any(Target::hosts_a_control_plane)
}

const fn operation(operation: review::Operation) -> decide::Operation {
    match operation {
        review::Operation::Create => decide::Operation::Create,
        review::Operation::Update => decide::Operation::Update,
        review::Operation::Delete | review::Operation::Connect => decide::Operation::Other,
    }
}

fn answer(reply: review::Reply, validation: Validation) -> Response {
    let (message, warnings, audit) = (validation.message, validation.warnings, validation.audit_annotations);
    match validation.outcome {
        ValidationOutcome::Denied => reply.deny(Denial {
            message,
            warnings,
            audit,
        }),
        _ => reply.allow(Verdict {
            warnings,
            audit,
            ..Verdict::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::{Value, json};

    use super::*;
    use crate::view::Index;

    fn reviewer() -> Reviewer {
        let metrics = Metrics::new();
        Reviewer {
            migrations: Migrations::new(Arc::clone(&metrics)),
            namespaces: Namespaces::new(None),
            clusters: Clusters::default(),
            own_namespace: String::new(),
            metrics,
        }
    }

    fn migration(observed: Value, targets: Value) -> CloudProviderMigration {
        let object = json!({"metadata": {"name": "prod", "generation": 4},
            "spec": {"clusterID": "prod", "phase": "Migrate", "targets": targets},
            "status": {"observedGeneration": observed}});
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn the_status_of_an_earlier_spec_is_outdated_only_where_no_manager_runs() {
        let (reviewer, now) = (reviewer(), Instant::now());
        let outdated = |observed, targets| reviewer.is_outdated(&migration(observed, targets), now);
        let hosted = json!([{"profile": "HostedControlPlane", "namespaceSelector": {"matchLabels": {"a": "b"}}}]);
        assert!(!outdated(json!(3), json!([])), "the lease was not read yet");
        reviewer.clusters.own.replace(Vec::<Lease>::new());
        assert!(outdated(json!(3), json!([])));
        assert!(!outdated(json!(4), json!([])), "of this spec");
        assert!(!outdated(Value::Null, json!([])), "of an unknown spec");
        assert!(!outdated(json!(3), hosted), "its manager's lease is in another cluster");
    }
}
