//! The latch: complete evidence, stored so that no later manager has to gather it again. Pure.

use serde::{Deserialize, Serialize};

use outrigger_shared::migration::Phase;

/// The annotation of lease C that holds the latch.
pub const ANNOTATION: &str = outrigger_shared::annotations::PREPARED;

/// Evidence that was once complete: every kube-controller-manager of the cluster had leader migration on, or was
/// external. It is valid for every later holder of the main lease, across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Latch {
    /// The UID of the `CloudProviderMigration` that it was written for: a new object starts without a latch.
    pub uid: String,
    /// The last observed phase. A manager that cannot read the object follows it.
    pub phase: Phase,
    /// Whether an Outrigger manager has held the migration lease. If so, a rollback step releases it actively.
    pub held_migration_lease: bool,
}

/// Why a latch annotation cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "annotation {ANNOTATION} of the main lease is not a latch ({source}): remove it, so that the evidence is gathered again"
)]
pub struct InvalidLatch {
    source: serde_json::Error,
}

impl Latch {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// [`InvalidLatch`]: another program wrote it. Treat it as no latch.
    pub fn parse(text: &str) -> Result<Self, InvalidLatch> {
        serde_json::from_str(text).map_err(|source| InvalidLatch { source })
    }

    /// The annotation's value.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_value(self)
            .map(|value| value.to_string())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_survives_its_annotation() {
        let latch = Latch {
            uid: "u".into(),
            phase: Phase::Migrate,
            held_migration_lease: true,
        };
        assert_eq!(
            latch.to_text(),
            r#"{"heldMigrationLease":true,"phase":"Migrate","uid":"u"}"#
        );
        assert_eq!(Latch::parse(&latch.to_text()).unwrap(), latch);
    }

    #[test]
    fn a_foreign_annotation_is_an_error_that_names_it() {
        let error = Latch::parse("yes").unwrap_err().to_string();
        assert!(error.contains("outrigger.dev/prepared"), "{error}");
    }
}
