//! The latch: complete evidence, stored so that no later manager has to gather it again. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use outrigger_shared::migration::Phase;

/// The annotation of lease C that holds the latch.
pub const ANNOTATION: &str = outrigger_shared::annotations::PREPARED;

/// The format that this program writes. A change that an older program must not ignore raises it.
pub const VERSION: u32 = 1;

/// Why this manager may own the shared controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Basis {
    /// Every kube-controller-manager had leader migration on, or was external.
    LeaderMigration,
    /// Every kube-controller-manager was external, and nobody renewed the migration lease.
    External,
    /// The operator's word in `spec.attestedPhase`, where none could be read.
    Attested,
}

/// Evidence that was once complete. It is valid for every later holder of the main lease, across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latch {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The UID of the `CloudProviderMigration` that it was written for: a new object starts without a latch.
    pub uid: String,
    /// The generation of the last observed spec. A larger gap to the object's shows that its spec changed unobserved.
    pub generation: i64,
    /// The last observed phase. A manager that cannot read the object follows it.
    pub phase: Phase,
    pub basis: Basis,
    /// The last identity of an Outrigger manager that held the migration lease. If there is one, a rollback step offers
    /// the lease to the old manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// When it acquired the lease, by the clocks of the API servers; absent once another process had the lease. A
    /// kube-controller-manager that wrote later is a second owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Timestamp>,
    /// The holder of the kube-controller-manager's main lease that does not acquire the migration lease: it was
    /// external while a manager of ours held it, or it was offered the migration lease and did not acquire it. While
    /// the object cannot be read, only another holder is offered the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_holder: Option<String>,
    /// The object was created again: without a readable object this latch binds nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// Fields of newer programs with the same format.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidLatch {
    #[error("annotation {ANNOTATION} of the main lease is not a latch ({0})")]
    Syntax(#[from] serde_json::Error),
    #[error(
        "annotation {ANNOTATION} of the main lease has format {found}, and this program reads formats up to {VERSION}"
    )]
    Newer { found: u32 },
}

impl Latch {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// [`InvalidLatch`]: a newer or another program wrote it. The annotation must stay, and nothing may be decided.
    pub fn parse(text: &str) -> Result<Self, InvalidLatch> {
        let latch: Self = serde_json::from_str(text)?;
        if latch.version > VERSION {
            return Err(InvalidLatch::Newer { found: latch.version });
        }
        Ok(latch)
    }

    pub fn to_text(&self) -> String {
        serde_json::to_value(self)
            .map(|value| value.to_string())
            .unwrap_or_default()
    }
}

/// The annotation of lease C as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stored {
    #[default]
    Absent,
    Latch(Latch),
    /// Another program's, or a newer one's. Contains the reason.
    Unreadable(String),
}

impl Stored {
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation.map(Latch::parse) {
            None => Self::Absent,
            Some(Ok(latch)) => Self::Latch(latch),
            Some(Err(error)) => Self::Unreadable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latch() -> Latch {
        Latch {
            version: VERSION,
            uid: "u".into(),
            generation: 3,
            phase: Phase::Migrate,
            basis: Basis::LeaderMigration,
            held_by: Some("host_1".into()),
            held_since: Some("2026-01-01T00:00:01Z".parse().unwrap()),
            main_holder: Some("kcm-0_1".into()),
            superseded: false,
            other: BTreeMap::new(),
        }
    }

    #[test]
    fn a_latch_survives_its_annotation() {
        assert_eq!(
            latch().to_text(),
            r#"{"basis":"LeaderMigration","generation":3,"heldBy":"host_1","heldSince":"2026-01-01T00:00:01Z","mainHolder":"kcm-0_1","phase":"Migrate","uid":"u","version":1}"#
        );
        assert_eq!(Latch::parse(&latch().to_text()).unwrap(), latch());
    }

    #[test]
    fn a_latch_of_a_program_that_did_not_know_the_optional_fields_is_read() {
        let text = r#"{"basis":"External","generation":3,"phase":"Migrate","uid":"u","version":1}"#;
        let latch = Latch::parse(text).unwrap();
        assert_eq!((latch.main_holder.as_ref(), latch.to_text().as_str()), (None, text));
    }

    #[test]
    fn a_field_of_a_newer_program_is_kept() {
        let text = latch()
            .to_text()
            .replace(r#""generation""#, r#""future":[1],"generation""#);
        assert_eq!(Latch::parse(&text).unwrap().to_text(), text);
    }

    #[test]
    fn a_foreign_annotation_and_a_newer_format_are_unreadable_and_say_which() {
        let newer = latch().to_text().replace(r#""version":1"#, r#""version":2"#);
        for (text, why) in [("yes", "is not a latch"), (newer.as_str(), "has format 2")] {
            let Stored::Unreadable(reason) = Stored::read(Some(text)) else {
                panic!("{text} was read");
            };
            assert!(
                reason.contains(why) && reason.contains("outrigger.dev/prepared"),
                "{reason}"
            );
        }
        assert_eq!(Stored::read(None), Stored::Absent);
    }
}
