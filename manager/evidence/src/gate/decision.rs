//! Inputs and result of the decision.

use std::time::Duration;

use outrigger_shared::migration::{Attestation, Phase};

use crate::facts::{Facts, Reading, is_attested_for};
use crate::latch::{Latch, Stored};
use crate::why::{Warning, Why};

/// How long M stays free after it was offered to an old manager, so that one that polls can acquire it: client-go tries
/// at least every 4.4 s (`RetryPeriod` 2 s and jitter).
pub const YIELD: Duration = Duration::from_secs(10);

/// The fields of the `CloudProviderMigration` that the gate reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSpec {
    pub uid: String,
    pub generation: i64,
    pub phase: Phase,
    /// As the object has it; it may be left over from an earlier run of the phase.
    pub attestation: Option<Attestation>,
    /// This process observed the object in this phase without an attestation of it.
    pub seen_unattested: bool,
}

impl MigrationSpec {
    /// The attestation, if it is for this phase.
    pub fn attestation(&self) -> Option<&Attestation> {
        self.attestation
            .as_ref()
            .filter(|attestation| is_attested_for(attestation, self.phase))
    }
}

/// Everything that the decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    pub spec: Reading<MigrationSpec>,
    /// The latch as lease C has it.
    pub latch: Stored,
    /// Old managers, leases, own settings.
    pub facts: Facts,
    pub identity: String,
    /// This process holds M now.
    pub holding: bool,
    /// In a step back: the host of K's holder was not offered M yet, or its backoff since the last offer is over.
    pub offer_due: bool,
    /// M has been free, and K's holder the same, for [`YIELD`].
    pub yielded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// Compete for it, or keep it.
    Compete,
    /// Keep it, and write nothing under it.
    Pause(Why),
    /// Rollback step: compete when [`YIELD`] is over.
    Yield(Why),
    /// Do not compete.
    StandBy(Why),
    /// Stop and join the migrated controllers, then release M.
    Release(Why),
    /// Like `Release`, because a process that may act without M holds K, or acts without K.
    Alarm(Why),
}

impl LeaseAction {
    /// Why M is not competed for; none while it is.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Compete => None,
            Self::Pause(why) | Self::Yield(why) | Self::StandBy(why) | Self::Release(why) | Self::Alarm(why) => {
                Some(why)
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatchChange {
    /// The annotation stays as it is, also one of another object.
    Keep,
    Store(Latch),
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The action assumes the latch that C has now: a new latch is stored first.
    pub latch: LatchChange,
    pub action: LeaseAction,
    /// The effective phase: that of the object, or the last known one.
    pub phase: Option<Phase>,
    pub bound: Option<Latch>,
    pub warnings: Vec<Warning>,
}
