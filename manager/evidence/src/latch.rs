//! The latch: complete evidence, stored so that no later manager has to gather it again. Pure.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use outrigger_shared::migration::Phase;

use crate::facts::Proven;

/// The annotation of lease C that holds the latch.
pub const ANNOTATION: &str = outrigger_shared::annotations::PREPARED;

/// The annotation of lease C that keeps the text of a damaged latch, when a new one replaces it.
pub const DAMAGED_ANNOTATION: &str = outrigger_shared::annotations::PREPARED_DAMAGED;

/// The format that this program writes. A change that an older program must not ignore raises it.
pub const VERSION: u32 = 1;

/// Evidence that was once complete. It is valid for every later holder of the main lease, across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latch {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The UID of the `CloudProviderMigration` that it was written for: a new object starts without a latch.
    pub uid: String,
    /// The last observed phase. A manager that cannot read the object follows it.
    pub phase: Phase,
    /// The last identity of an Outrigger manager that held the migration lease. If there is one, a rollback step offers
    /// the lease to the old manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Kube-controller-managers that were proven to act only while they hold the migration lease, or not at all: the holder
    /// of their main lease first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proven: Vec<Proven>,
    /// The holder of the kube-controller-manager's main lease when the phase began, unless it had held the migration lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub led_before: Option<String>,
    /// The object was observed in this phase without an attestation of it, so one that it has now was made in this phase.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seen_unattested: bool,
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

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Latch {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// [`InvalidLatch`]: it is damaged, or a newer program wrote it.
    pub fn parse(text: &str) -> Result<Self, InvalidLatch> {
        // Of a newer format only the version is known.
        let Version { version } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(InvalidLatch::Newer { found: version });
        }

        Ok(serde_json::from_str(text)?)
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
    /// It is no latch: nothing is known from it, so it counts as absent. Contains the text.
    Damaged(String),
    /// A newer program wrote it. This one must not lead. Contains the reason.
    Newer(String),
}

impl Stored {
    pub fn read(annotation: Option<&str>) -> Self {
        let Some(text) = annotation else {
            return Self::Absent;
        };
        match Latch::parse(text) {
            Ok(latch) => Self::Latch(latch),
            Err(InvalidLatch::Syntax(_)) => Self::Damaged(text.to_owned()),
            Err(error @ InvalidLatch::Newer { .. }) => Self::Newer(error.to_string()),
        }
    }
}

/// The latch that a Lease carries.
pub fn of_lease(lease: &DynamicObject) -> Stored {
    let annotations = lease.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(ANNOTATION));
    Stored::read(text.map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Basis;

    fn latch() -> Latch {
        Latch {
            version: VERSION,
            uid: "u".into(),
            phase: Phase::Migrate,
            held_by: Some("host_1".into()),
            proven: vec![Proven {
                identity: "kcm-0_1".into(),
                by: Basis::External,
            }],
            led_before: None,
            seen_unattested: true,
            superseded: false,
            other: BTreeMap::new(),
        }
    }

    #[test]
    fn a_latch_survives_its_annotation() {
        assert_eq!(
            latch().to_text(),
            r#"{"heldBy":"host_1","phase":"Migrate","proven":[{"by":"External","identity":"kcm-0_1"}],"seenUnattested":true,"uid":"u","version":1}"#
        );
        assert_eq!(Latch::parse(&latch().to_text()).unwrap(), latch());
    }

    #[test]
    fn a_latch_without_the_optional_fields_is_read() {
        let text = r#"{"phase":"Migrate","uid":"u","version":1}"#;
        let latch = Latch::parse(text).unwrap();
        assert_eq!((latch.proven.len(), latch.to_text().as_str()), (0, text));
    }

    #[test]
    fn a_field_of_a_newer_program_is_kept() {
        let text = latch().to_text().replace(r#""heldBy""#, r#""future":[1],"heldBy""#);
        assert_eq!(Latch::parse(&text).unwrap().to_text(), text);
    }

    #[test]
    fn a_damaged_annotation_and_a_newer_format_are_told_apart() {
        assert_eq!(Stored::read(None), Stored::Absent);
        let cut = &latch().to_text()[..20];
        for text in ["yes", "", "{}", cut, r#"{"version":1}"#] {
            assert_eq!(Stored::read(Some(text)), Stored::Damaged(text.to_owned()));
        }
        // A newer format may have none of this one's fields.
        let Stored::Newer(reason) = Stored::read(Some(r#"{"version":2,"cluster":"u"}"#)) else {
            panic!("it was read");
        };
        assert!(
            reason.contains("has format 2") && reason.contains("outrigger.dev/prepared"),
            "{reason}"
        );
    }
}
