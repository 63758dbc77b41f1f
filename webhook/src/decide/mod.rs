//! The decision: what an object has to become, and why. Pure: no input and output, no client, no clock.
//!
//! One function, [`decide`], used by the webhook and by every tool that must agree with it. Without a
//! `CloudProviderMigration` that matches the object, nothing is changed.
//!
//! | object | file |
//! |---|---|
//! | what a review says, and whether it is an occasion to act | `input.rs` |
//! | which kinds have rules | `kinds.rs` |
//! | which migration does the object belong to | `matching.rs` |
//! | the way between phases for the durable objects of provisioners | `durable.rs`, `document.rs`, `place.rs` |
//! | Cluster API's control planes, machine configurations and templates | `cluster_api/` |
//! | flags in YAML texts inside of objects | `yaml_arguments.rs` |
//! | ConfigMaps of kubeadm | `kubeadm_config.rs` |
//! | HelmChart of the cloud-controller-manager, alone or in a manifest | `helm_chart.rs`, `helm_warnings.rs` |
//! | Deployment, StatefulSet, DaemonSet | `workload.rs` |
//! | Pod | `pod.rs` |
//! | the command lines in either | `pod_spec.rs`, `pod_row.rs` |
//! | the file of `spec.leaderMigration` in either | `leader_migration_file.rs` |
//! | the way back in either | `pod_undo.rs` |
//! | Node | `node.rs` |
//! | Rancher's Cluster of RKE2 and K3s, of RKE1 | `rancher_rke2.rs`, `rancher_rke1.rs` |
//! | `cloud-provider` in files, commands and user data beside the argument lists | `outside_text.rs` |
//! | how Rancher merges the configuration of a machine | `machine_config.rs` |
//! | what RKE2 passes to its components for `cloud-provider-name`, by release | `rke2_provider.rs` |
//! | Kubermatic's Cluster and the Machines of its user clusters | `kubermatic.rs`, `machine.rs` |
//! | HyperShift's control planes, which are left to their operator | `hypershift.rs` |
//! | tags of AWS resources, and where a cluster's key must not be | `tags/` |
//! | what is refused, where an operator asks for it | `validate.rs` |
//! | how long a warning may be | `warning.rs` |

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use outrigger_shared::migration::{CloudProviderMigration, CloudProviderMigrationSpec, Mode};
use serde_json::Value;

use self::matching::Match;

mod arguments;
mod cluster_api;
mod document;
mod durable;
mod helm_chart;
mod helm_warnings;
mod hypershift;
mod input;
mod kamaji;
mod kinds;
mod kubeadm_config;
mod kubermatic;
mod leader_migration_file;
mod machine;
mod machine_config;
mod matching;
mod node;
mod outside_text;
mod place;
mod pod;
mod pod_row;
mod pod_spec;
mod pod_undo;
mod rancher_rke1;
mod rancher_rke2;
mod rancher_warnings;
mod rke2_provider;
pub mod tags;
mod validate;
mod warning;
mod workload;
mod yaml_arguments;

pub use self::input::{Input, Operation};
pub use self::kinds::{Kind, kinds};
pub use self::validate::{Judged, Judgement, validate};

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
    pub const ALL: [Self; 5] = [
        Self::NotOurs,
        Self::Unchanged,
        Self::Changed,
        Self::Audited,
        Self::Refused,
    ];

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

/// What a kind's rules want to do, before the migration's mode is looked at.
#[derive(Debug, Default)]
struct Draft {
    patch: Vec<PatchOperation>,
    warnings: Vec<String>,
    reasons: Vec<String>,
    refused: bool,
}

impl Draft {
    /// Notes what stands in the way, for the client too.
    fn refuse(&mut self, warning: String) {
        self.reasons.push(warning.clone());
        self.warnings.push(warning);
        self.refused = true;
    }
}

/// Decides one review.
#[must_use]
pub fn decide(input: &Input<'_>) -> Decision {
    if input.operation == Operation::Other || !input.subresource.is_empty() {
        return Decision::default();
    }
    // A kind's rows have different profiles, so the first one with a matching migration is the only one.
    kinds::concerned(input)
        .map(|kind| decide_as(input, kind))
        .find(|decision| decision.outcome != Outcome::NotOurs)
        .unwrap_or_default()
}

fn decide_as(input: &Input<'_>, kind: &Kind) -> Decision {
    match matching::find(input, kind.profiles) {
        Match::None => Decision::default(),
        Match::NamespaceUnknown(namespace) => Decision::refusal(format!(
            "outrigger: nothing changed, as the labels of namespace {namespace} are not known; write the object again"
        )),
        Match::Several(names) => Decision::refusal(format!(
            "outrigger: nothing changed, as several migrations match: {}; correct their spec.targets",
            names.join(", ")
        )),
        Match::One(migration) => Decision::of((kind.draft)(input, migration), migration, kind),
    }
}

impl Decision {
    fn refusal(warning: String) -> Self {
        let outcome = Outcome::Refused;
        let audit_annotations = BTreeMap::from([
            ("decision".to_owned(), outcome.as_str().to_owned()),
            ("reasons".to_owned(), warning.clone()),
        ]);
        Self {
            outcome,
            reasons: vec![warning.clone()],
            warnings: vec![warning],
            audit_annotations,
            ..Self::default()
        }
    }

    fn of(draft: Draft, migration: &Migration<'_>, kind: &Kind) -> Self {
        let Draft {
            mut patch,
            warnings: warnings_of_draft,
            mut reasons,
            refused,
        } = draft;
        let (mut warnings, mut whole) = (Vec::new(), Vec::new());
        for text in warnings_of_draft {
            let warning = warning::of_migration(migration.name, &text);
            if !warning.ends_with(&text) && !reasons.contains(&text) {
                whole.push(text);
            }
            warnings.push(warning);
        }
        let audits = migration.spec.mode == Mode::Audit && !patch.is_empty();
        if audits {
            patch.clear();
            let wishes = reasons.iter().map(|reason| warning::of_audit(migration.name, reason));
            warnings.extend(wishes);
            reasons.push("spec.mode is Audit, so nothing is changed".to_owned());
        }
        // What is shortened for a client is there as a whole.
        reasons.extend(whole);
        let outcome = match (audits, patch.is_empty(), refused) {
            (true, ..) => Outcome::Audited,
            (_, false, _) => Outcome::Changed,
            (_, true, true) => Outcome::Refused,
            (_, true, false) => Outcome::Unchanged,
        };
        let mut audit_annotations = BTreeMap::from([
            ("migration".to_owned(), migration.name.to_owned()),
            ("phase".to_owned(), migration.spec.phase.to_string()),
            ("decision".to_owned(), outcome.as_str().to_owned()),
            ("rule".to_owned(), kind.rule()),
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ]);
        if !reasons.is_empty() {
            audit_annotations.insert("reasons".to_owned(), reasons.join("; "));
        }
        Self {
            outcome,
            patch,
            warnings,
            audit_annotations,
            reasons,
        }
    }
}

/// An annotation's value, text or not.
fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.pointer("/metadata/annotations")?.get(key)
}
