//! Handles one review: parse, gather input, decide, answer.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_decide::{
    Decision, Input, MAX_WORK, Migration, Operation, Outcome, RequestedPhase, Shortage, Validation, ValidationOutcome,
    decide, validate,
};
use outrigger_shared::migration::{CloudProviderMigration, Target};
use outrigger_shared::work::WorkBudget;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::callers::Caller;
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

/// A review that is answered, or waits for what the clusters know.
enum Step {
    Answered(Response),
    Waiting(Lacks, Box<Pending>),
}

/// Knowledge that a decision needs and does not have. It is asked for once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// The phase that the operator requests.
    Phase,
    NamespaceLabels,
}

/// A review that is not decided yet.
struct Pending {
    review: Review,
    situation: Situation,
    work: WorkBudget,
    #[expect(dead_code, reason = "the memory for the objects is taken until they are dropped")]
    objects: Option<OwnedSemaphorePermit>,
}

/// Knowledge of a decision beside the review.
struct Situation {
    endpoint: Endpoint,
    path: Option<String>,
    migrations: Arc<MigrationSnapshot>,
    namespace_labels: Option<Labels>,
    asked: Vec<Lacks>,
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
        let situation = Situation {
            endpoint,
            path: path.map(str::to_owned),
            migrations: self.migrations.known().ok_or(NotAdmitted::NotReady)?,
            namespace_labels: None,
            asked: Vec::new(),
        };

        let reviewer = Arc::clone(self);
        let mut step = threads
            .run(caller, move || reviewer.read(situation, &body, budget))
            .await?;
        loop {
            let (lacks, mut pending) = match step {
                Step::Answered(response) => return Ok(response),
                Step::Waiting(lacks, pending) => (lacks, pending),
            };
            self.ask(lacks, &mut pending).await;

            let reviewer = Arc::clone(self);
            step = threads.run(caller, move || reviewer.decide(*pending)).await;
        }
    }

    /// Asks for what the decision lacks. Without an answer, it is made without it.
    async fn ask(&self, lacks: Lacks, pending: &mut Pending) {
        let Pending { review, situation, .. } = pending;
        situation.asked.push(lacks);
        match (lacks, requested_phase(&review.request)) {
            (Lacks::Phase, Some(RequestedPhase { migration, phase })) => {
                let newer = self.migrations.known_with_phase(migration, phase).await;
                situation.migrations = newer.unwrap_or_else(|| Arc::clone(&situation.migrations));
            }
            (Lacks::Phase, None) => {}
            (Lacks::NamespaceLabels, _) => {
                situation.namespace_labels = self.namespaces.labels(&review.request.namespace).await;
            }
        }
    }

    /// Reads a review, and decides it unless it has to wait.
    fn read(&self, situation: Situation, body: &[u8], budget: MemoryBudget) -> Result<Step, NotAdmitted> {
        let mut work = WorkBudget::new(MAX_WORK);
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

        Ok(self.decide(Pending {
            review,
            situation,
            work,
            objects: budget.close(),
        }))
    }

    fn decide(&self, mut pending: Pending) -> Step {
        let Pending {
            review: Review { request, .. },
            situation,
            work,
            ..
        } = &mut pending;
        if requested_phase(request).is_some() && !situation.asked.contains(&Lacks::Phase) {
            return Step::Waiting(Lacks::Phase, Box::new(pending));
        }
        if situation.namespace_labels.is_none() {
            situation.namespace_labels = self.namespaces.cached(&request.namespace);
        }

        match situation.endpoint {
            Endpoint::Mutate => {
                let decision = work.run(|| self.decide_with(situation, request, decide));
                if situation.lacks_namespace(decision.shortage) {
                    return Step::Waiting(Lacks::NamespaceLabels, Box::new(pending));
                }
                self.report(request, &decision);
                Step::Answered(pending.review.reply.allow(Verdict {
                    patch: decision.patch,
                    warnings: decision.warnings,
                    audit: decision.audit_annotations,
                }))
            }
            Endpoint::Validate => {
                let validation = work.run(|| self.decide_with(situation, request, validate));
                if situation.lacks_namespace(validation.shortage) {
                    return Step::Waiting(Lacks::NamespaceLabels, Box::new(pending));
                }
                self.report_validation(request, &validation);
                Step::Answered(answer(pending.review.reply, validation))
            }
        }
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
        if decision.outcome == Outcome::NotOurs {
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

impl Situation {
    /// Whether the labels of the namespace may be known after a request for them. The namespaces of a migration's path are
    /// those of another cluster.
    fn lacks_namespace(&self, shortage: Option<Shortage>) -> bool {
        let is_asked = self.asked.contains(&Lacks::NamespaceLabels);
        shortage == Some(Shortage::NamespaceLabels) && self.path.is_none() && !is_asked
    }
}

fn requested_phase(request: &Request) -> Option<RequestedPhase<'_>> {
    RequestedPhase::of(request.object.as_ref()?, request.old_object.as_ref())
}

fn is_hosted(migration: &CloudProviderMigration) -> bool {
    migration.spec.targets.iter().any(Target::hosts_a_control_plane)
}

const fn operation(operation: review::Operation) -> Operation {
    match operation {
        review::Operation::Create => Operation::Create,
        review::Operation::Update => Operation::Update,
        review::Operation::Delete | review::Operation::Connect => Operation::Other,
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
    use serde::de::DeserializeOwned;
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

    fn migration<T: DeserializeOwned>(observed: Value, targets: Value) -> T {
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

    /// The first step of the review of a kube-controller-manager in a namespace with unknown labels.
    fn begin(reviewer: &Reviewer, path: Option<&str>) -> Step {
        let hosted = json!([{"profile": "HostedControlPlane", "namespaceSelector": {"matchLabels": {"a": "b"}}}]);
        reviewer.migrations.replace(vec![migration(json!(4), hosted)]);
        let container =
            json!({"name": "kube-controller-manager", "command": ["kube-controller-manager"], "image": "x:v1.26.0"});
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kcm", "namespace": "tenant"},
            "spec": {"containers": [container]}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
            "namespace": "tenant", "name": "kcm", "object": object}});
        let situation = Situation {
            endpoint: Endpoint::Mutate,
            path: path.map(str::to_owned),
            migrations: reviewer.migrations.known().unwrap(),
            namespace_labels: None,
            asked: Vec::new(),
        };
        let budget = MemoryBudget::unshared(1 << 20);
        reviewer.read(situation, review.to_string().as_bytes(), budget).unwrap()
    }

    #[tokio::test]
    async fn a_namespace_is_asked_for_once_and_the_steps_of_both_decisions_count() {
        let reviewer = reviewer();
        let Step::Waiting(lacks, mut pending) = begin(&reviewer, None) else {
            panic!("it is answered");
        };
        assert_eq!(lacks, Lacks::NamespaceLabels);
        let used = pending.work.used();
        assert!(used > 0);

        // There is no such namespace.
        reviewer.ask(lacks, &mut pending).await;
        assert_eq!(pending.work.used(), used, "the same budget");
        let Step::Answered(response) = reviewer.decide(*pending) else {
            panic!("it waits again");
        };
        let text = format!("{response:?}");
        assert!(text.contains("the labels of namespace tenant are not known"), "{text}");

        // The namespaces of a path are those of another cluster.
        assert!(matches!(begin(&reviewer, Some("prod")), Step::Answered(_)));
    }
}
