//! The decision: what an object has to become, and why. Pure: no input and output, no client, no clock.
//!
//! One function, [`decide`], used by the webhook and by every tool that must agree with it. Without a
//! `CloudProviderMigration` that matches the object, nothing is changed.
//!
//! | object | file |
//! |---|---|
//! | which migration does the object belong to | `matching.rs` |
//! | Deployment, StatefulSet | `workload.rs` |
//! | Pod | `pod.rs` |
//! | the command lines in either | `pod_spec.rs` |
//! | Node | `node.rs` |
//! | MachineDeployment of the machine-controller | `machine_deployment.rs` |

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use outrigger_shared::migration::{CloudProviderMigration, CloudProviderMigrationSpec};
use serde_json::Value;

/// What happens to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is written again.
    Update,
    /// Anything else; never changed.
    Other,
}

/// A migration as decisions see it.
#[derive(Clone, Copy, Debug)]
pub struct Migration<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// What the operator asks for.
    pub spec: &'a CloudProviderMigrationSpec,
    /// Status condition `Prepared` is `True`.
    pub prepared: bool,
}

impl<'a> From<&'a CloudProviderMigration> for Migration<'a> {
    fn from(migration: &'a CloudProviderMigration) -> Self {
        Self {
            name: migration.metadata.name.as_deref().unwrap_or_default(),
            spec: &migration.spec,
            prepared: migration.is_prepared(),
        }
    }
}

/// Everything that a decision may look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What happens to the object.
    pub operation: Operation,
    /// API group of the object's kind; empty for the core group.
    pub group: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// The part of the object that is written (`status`, `scale`, …); empty for the object itself.
    pub subresource: &'a str,
    /// The object's namespace; none for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// Labels of that namespace; none when they are not known, and then no selector on them matches.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// The object's name; empty while the API server has not generated it.
    pub name: &'a str,
    /// The object as it is about to be stored.
    pub object: &'a Value,
    /// The object as it is stored now; none on creation.
    pub old_object: Option<&'a Value>,
    /// Every migration there is.
    pub migrations: &'a [Migration<'a>],
    /// The migration that the request's path names, `/mutate/NAME`: the API server that asks is that cluster's own.
    pub path_migration: Option<&'a str>,
    /// The webhook's own namespace, which it leaves alone.
    pub own_namespace: Option<&'a str>,
    /// Whether a cloud-controller-manager holds its main lease in the cluster of the Node; none when it is not known.
    pub manager_fresh: Option<bool>,
}

/// What came of a review, for counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No migration matches, or the object is none that is ever changed.
    #[default]
    NotOurs,
    /// The object is as it should be, or may not be changed now.
    Unchanged,
    /// The patch changes the object.
    Changed,
    /// It would be changed, but the migration only audits.
    Audited,
    /// It would be changed, but something stands in the way; a warning says what.
    Refused,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [Self::NotOurs, Self::Unchanged, Self::Changed, Self::Audited, Self::Refused];

    /// The label in metrics and audit annotations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "not-ours",
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Audited => "audited",
            Self::Refused => "refused",
        }
    }
}

/// The answer to a review.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What came of it.
    pub outcome: Outcome,
    /// The smallest change that does it; empty when nothing changes.
    pub patch: Vec<PatchOperation>,
    /// For the client that wrote the object.
    pub warnings: Vec<String>,
    /// For the API server's audit log. Keys have no prefix: the API server puts the webhook's name before them.
    pub audit_annotations: BTreeMap<String, String>,
    /// Each change that was made, and why others were not.
    pub reasons: Vec<String>,
}

/// Decides one review.
#[must_use]
pub fn decide(input: &Input<'_>) -> Decision {
    let _ = input;
    Decision::default()
}
