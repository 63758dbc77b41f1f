//! Denies objects, if an operator has registered the validating path: tags that assign a resource to another cluster or
//! forge a key that access control trusts, and two writes that would end a migration without evidence.
//!
//! The mutating path warns of the same and denies nothing. An update is denied only for what it adds or changes: an
//! object that is invalid already must stay writable, so that it can be corrected.

use std::collections::BTreeMap;

use outrigger_shared::{
    controller::{Controller, Party},
    migration::{Mode, Phase, Profile, condition},
    work,
};
use serde_json::Value;

use super::{
    Input, MAX_WORK, Migration, Operation, Shortage, kubermatic,
    matching::{self, Match},
    tags,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ValidationOutcome {
    /// No migration matches, or no rule is about the object.
    #[default]
    NotOurs,
    Passed,
    /// Violations that only cause a warning, or `spec.mode` is Audit.
    Warned,
    Denied,
}

impl ValidationOutcome {
    pub const ALL: [Self; 4] = [Self::NotOurs, Self::Passed, Self::Warned, Self::Denied];

    /// The label in metrics and audit annotations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "not-ours",
            Self::Passed => "passed",
            Self::Warned => "warned",
            Self::Denied => "denied",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    pub outcome: ValidationOutcome,
    /// Why the object is denied; empty if it is not.
    pub message: String,
    /// For the client that wrote the object.
    pub warnings: Vec<String>,
    /// For the API server's audit log.
    pub audit_annotations: BTreeMap<String, String>,
    /// The shortage without which another result may be right.
    pub shortage: Option<Shortage>,
}

struct Violation {
    text: String,
    refuses: bool,
}

/// Validates within [`MAX_WORK`], or what is left of the active budget ([`work`]).
#[must_use]
pub fn validate(input: &Input<'_>) -> Validation {
    match work::within(MAX_WORK, || validate_now(input)) {
        (validation, false) => validation,
        (_, true) => Validation::lacking(
            Shortage::Work,
            "outrigger: not validated, because the object needs more work than one decision may take; make its texts and \
             lists shorter"
                .to_owned(),
        ),
    }
}

fn validate_now(input: &Input<'_>) -> Validation {
    if input.operation == Operation::Other || !input.subresource.is_empty() {
        return Validation::default();
    }
    if (input.group, input.kind) == ("outrigger.dev", "CloudProviderMigration") {
        return validate_migration(input);
    }

    // A forged tag must not pass because the same update removes the labels that the target selects.
    let before = input.old_object.map(|object| Input { object, ..*input });
    let found = |profiles: &[Profile]| match (matching::find(input, profiles), &before) {
        (Match::None, Some(before)) => matching::find(before, profiles),
        (found, _) => found,
    };
    let row = tags::row_of(input);
    let tags = row.map(|row| {
        validation_of(found(row.profiles), |migration| {
            let findings = tags::new_findings(input, migration, row);
            let violation = |finding: &tags::Finding| Violation {
                text: finding.to_string(),
                refuses: finding.refuses(),
            };
            findings.iter().map(violation).collect()
        })
    });

    let completion = is_completion_set(input).then(|| {
        validation_of(found(&[Profile::Kubermatic]), |_| {
            vec![Violation {
                text: format!(
                    "the machine-controller sets annotation {} when the kubelet is external; replace the Machine instead of setting the annotation",
                    kubermatic::MARK
                ),
                refuses: true,
            }]
        })
    });

    // The worse result wins.
    [tags, completion]
        .into_iter()
        .flatten()
        .max_by_key(|validation| validation.outcome as u8)
        .unwrap_or_default()
}

fn validation_of(found: Match<'_>, violations: impl FnOnce(&Migration<'_>) -> Vec<Violation>) -> Validation {
    let undecided = |warning: String| Validation {
        outcome: ValidationOutcome::Warned,
        warnings: vec![warning],
        ..Validation::default()
    };
    match found {
        Match::None => Validation::default(),
        Match::NamespaceUnknown(namespace) => Validation::lacking(
            Shortage::NamespaceLabels,
            format!(
                "outrigger: not validated, as the labels of namespace {namespace} are not known; write the object again"
            ),
        ),
        Match::Several(names) => undecided(format!(
            "outrigger: not validated, as several migrations match: {}; correct their spec.targets",
            names.join(", ")
        )),
        Match::One(migration) => Validation::of(&violations(migration), migration.name, migration.spec.mode),
    }
}

impl Validation {
    fn lacking(shortage: Shortage, warning: String) -> Self {
        Self {
            outcome: ValidationOutcome::Warned,
            warnings: vec![warning],
            shortage: Some(shortage),
            ..Self::default()
        }
    }

    fn of(violations: &[Violation], migration: &str, mode: Mode) -> Self {
        let refused: Vec<&str> = violations
            .iter()
            .filter(|violation| violation.refuses)
            .map(|violation| violation.text.as_str())
            .collect();
        let denied = !refused.is_empty() && mode == Mode::Enforce;
        let outcome = match (denied, violations.is_empty()) {
            (true, _) => ValidationOutcome::Denied,
            (false, false) => ValidationOutcome::Warned,
            (false, true) => ValidationOutcome::Passed,
        };
        let text = |text: &str| format!("outrigger: migration {migration}: {text}");
        let warned = violations.iter().filter(|violation| !(denied && violation.refuses));
        let mut audit_annotations = BTreeMap::from([
            ("migration".to_owned(), migration.to_owned()),
            ("decision".to_owned(), outcome.as_str().to_owned()),
        ]);

        if !violations.is_empty() {
            let all: Vec<&str> = violations.iter().map(|violation| violation.text.as_str()).collect();
            audit_annotations.insert("reasons".to_owned(), all.join("; "));
        }

        Self {
            outcome,
            message: if denied {
                text(&refused.join("; "))
            } else {
                String::new()
            },
            warnings: warned.map(|violation| text(&violation.text)).collect(),
            audit_annotations,
            shortage: None,
        }
    }
}

fn is_completion_set(input: &Input<'_>) -> bool {
    let is_true = |object: &Value| kubermatic::marked(object).is_some_and(is_go_true);
    (input.group, input.kind) == ("cluster.k8s.io", "Machine")
        && input.old_object.is_some_and(|old| !is_true(old))
        && is_true(input.object)
}

/// As KKP reads the annotation.
fn is_go_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// A return to InTree is denied while a cloud-controller-manager holds the migration lease, or offers it: in InTree that
/// lease is not managed, and old managers without leader migration may start. Without a running manager the status is
/// outdated, and nobody would change it.
fn validate_migration(input: &Input<'_>) -> Validation {
    let in_tree = |object: &Value| {
        let phase = object.pointer("/spec/phase").and_then(Value::as_str);
        phase.is_none_or(|phase| phase == Phase::InTree.to_string())
    };
    let Some(old) = input.old_object.filter(|old| in_tree(input.object) && !in_tree(old)) else {
        return Validation::default();
    };

    let owned = owned_controllers(old);
    let state = match (owned.as_slice(), is_stepping_back(old)) {
        _ if input.manager_fresh == Some(false) => None,
        ([], false) => None,
        ([], true) => Some("the migration lease is offered to the old manager".to_owned()),
        (owned, _) => Some(format!("a cloud-controller-manager owns {}", owned.join(", "))),
    };
    let violations: Vec<Violation> = state
        .map(|state| Violation {
            text: format!(
                "phase InTree is refused: the status says that {state}; stay in Prepare until an old manager holds the migration lease. If you uninstall Outrigger, also set spec.mode: Audit"
            ),
            refuses: true,
        })
        .into_iter()
        .collect();
    let audits = input.object.pointer("/spec/mode").and_then(Value::as_str) == Some("Audit");
    let mode = if audits { Mode::Audit } else { Mode::Enforce };

    Validation::of(&violations, input.name, mode)
}

/// Whether the manager offers the migration lease: then it owns nothing for a moment, and may acquire the lease again.
fn is_stepping_back(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|row| row["type"] == condition::CONTROL_PLANE_MIGRATED && row["reason"] == "SteppingBack")
}

/// The shared controllers that the status assigns to the cloud-controller-manager. It always owns the node controller.
fn owned_controllers(object: &Value) -> Vec<&str> {
    let party = serde_json::to_value(Party::CloudControllerManager).ok();
    let rows = object.pointer("/status/controllers").and_then(Value::as_array);
    let ours = rows.into_iter().flatten().filter_map(|row| {
        let name = row.get("name")?.as_str()?;
        let shared = Controller::parse(name).is_some_and(|controller| Controller::SHARED.contains(&controller));
        (shared && row.get("owner") == party.as_ref()).then_some(name)
    });

    ours.collect()
}
