//! The decision of a mutating review, and its draft.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use outrigger_shared::migration::Mode;

use super::{input::Migration, warning};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No migration matches, or no rule is about the object.
    #[default]
    NotOurs,
    /// The object is as it should be, or may not be changed now.
    Unchanged,
    Changed,
    /// It would be changed, but `spec.mode` is Audit.
    Audited,
    /// It would be changed, but cannot be; a warning says why.
    Refused,
}

impl Outcome {
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub outcome: Outcome,
    /// Minimal; empty when nothing changes.
    pub patch: Vec<PatchOperation>,
    /// For the client that wrote the object.
    pub warnings: Vec<String>,
    /// For the API server's audit log. Keys have no prefix: the API server puts the webhook's name before them.
    pub audit_annotations: BTreeMap<String, String>,
    /// Why the object is changed, or is not.
    pub reasons: Vec<String>,
    /// The shortage without which another decision may be right.
    pub shortage: Option<Shortage>,
}

/// Why an object is not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A target may select the object, but the labels of its namespace are not known.
    NamespaceLabels,
    /// The object needs more work than one decision may take.
    Work,
}

/// Result of the rules of a kind, before the mode of the migration is applied.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub patch: Vec<PatchOperation>,
    pub warnings: Vec<String>,
    pub reasons: Vec<String>,
    pub refused: bool,
}

impl Draft {
    /// Nothing is changed, for a reason.
    pub fn unchanged(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            ..Self::default()
        }
    }

    /// Nothing is changed, although it should be.
    pub fn refused(warning: impl Into<String>) -> Self {
        let mut draft = Self::default();
        draft.refuse(warning.into());
        draft
    }

    /// Refuses the change, with a reason and a warning.
    pub fn refuse(&mut self, warning: String) {
        self.reasons.push(warning.clone());
        self.warnings.push(warning);
        self.refused = true;
    }
}

impl Decision {
    pub(super) fn refusal(warning: String) -> Self {
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

    /// A refusal that says what the decision lacks.
    pub(super) fn lacking(shortage: Shortage, warning: String) -> Self {
        Self {
            shortage: Some(shortage),
            ..Self::refusal(warning)
        }
    }

    pub(super) fn of(draft: Draft, migration: &Migration<'_>, rule: String) -> Self {
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
            let requests = reasons.iter().map(|reason| warning::of_audit(migration.name, reason));
            warnings.extend(requests);
            reasons.push("spec.mode is Audit, so nothing is changed".to_owned());
        }

        // The full text of shortened warnings.
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
            ("rule".to_owned(), rule),
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
            shortage: None,
        }
    }
}
