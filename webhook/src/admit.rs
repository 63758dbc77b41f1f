//! Handles one review: parse, gather input, decide, answer.

use std::sync::Arc;

use outrigger_shared::migration::{CloudProviderMigration, Target};
use tokio::time::Instant;

use crate::decide::{
    self, Decision, Input, Migration, RequestedPhase, Validation, ValidationOutcome, decide, validate,
};
use crate::memory_budget::MemoryBudget;
use crate::metrics::Metrics;
use crate::review::{self, Denial, Incoming, Malformed, Request, Response, Review, Verdict};
use crate::view::{Clusters, MigrationSnapshot, Migrations, Namespaces};

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

impl Reviewer {
    /// Answers the review in `body`, sent to `/mutate` or `/validate` (`path` is `None`), or to `/mutate/PATH` or
    /// `/validate/PATH`. Memory for its objects is taken from `budget`.
    ///
    /// # Errors
    /// [`NotAdmitted`] when the body holds no request with a UID, before the first list of migrations, or when memory
    /// is short.
    pub async fn admit(
        &self,
        endpoint: Endpoint,
        path: Option<&str>,
        body: &[u8],
        budget: MemoryBudget,
    ) -> Result<Response, NotAdmitted> {
        let known = self.migrations.known().ok_or(NotAdmitted::NotReady)?;
        let incoming = review::parse(body, &budget)?;
        if budget.is_shared_memory_exhausted() {
            return Err(NotAdmitted::NoMemory);
        }

        let _objects = budget.close();
        match incoming {
            Incoming::Unreadable(reply, reason) => {
                self.metrics.error(reason.class());
                tracing::warn!(%reason, "cannot read request; object allowed unchanged");
                Ok(reply.pass_unread(&reason))
            }
            Incoming::Review(review) => {
                let Review { request, reply } = *review;
                let known = self.with_requested_phase(&request, known).await;
                Ok(match endpoint {
                    Endpoint::Mutate => {
                        let decision = self.decide_with(path, &request, &known, decide).await;
                        self.report(&request, &decision);
                        reply.allow(Verdict {
                            patch: decision.patch,
                            warnings: decision.warnings,
                            audit: decision.audit_annotations,
                        })
                    }
                    Endpoint::Validate => {
                        let validation = self.decide_with(path, &request, &known, validate).await;
                        self.report_validation(&request, &validation);
                        answer(reply, validation)
                    }
                })
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

    async fn decide_with<T: Default>(
        &self,
        path: Option<&str>,
        request: &Request,
        known: &MigrationSnapshot,
        rule: impl FnOnce(&Input<'_>) -> T,
    ) -> T {
        let now = Instant::now();
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
        let labels = match namespace {
            Some(name) => self.namespaces.labels(name).await,
            None => None,
        };
        rule(&Input {
            operation: operation(request.operation),
            group: &request.kind.group,
            kind: &request.kind.kind,
            subresource: &request.sub_resource,
            namespace,
            namespace_labels: labels.as_deref(),
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

    fn report(&self, request: &Request, decision: &Decision) {
        let phase = decision.audit_annotations.get("phase").map(String::as_str);
        self.metrics.review(&request.kind.kind, decision.outcome, phase);
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
