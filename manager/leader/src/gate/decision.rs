//! Inputs and result of the decision.

use std::time::Duration;

use jiff::Timestamp;
use outrigger_shared::migration::Phase;

use crate::evidence::{self, Facts, Reading};
use crate::latch::{Latch, Stored};
use crate::service_write::ServiceWrite;

/// How long M stays free after it was offered to an old manager, so that one that polls can acquire it: client-go tries
/// at least every 4.4 s (`RetryPeriod` 2 s and jitter).
pub const YIELD: Duration = Duration::from_secs(10);

/// How long a new holder of K is observed before M is offered to it because the object cannot be read. The failure that
/// ends a watch often ends the holder of K, too: a server that restarts, a network that fails. Then both come back, and
/// the object shows that nobody went back. Until then this process owns the controllers.
pub const UNREADABLE: Duration = Duration::from_secs(15);

/// The fields of the `CloudProviderMigration` that the gate reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSpec {
    pub uid: String,
    pub generation: i64,
    pub phase: Phase,
    pub attested_phase: Option<Phase>,
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
    /// While this process holds M: when the API server stored its acquisition, by the API server's clock. The time of a
    /// write that was observed before the acquisition, if that is later: another API server may be ahead.
    pub acquired: Option<Timestamp>,
    /// The newest write of a Service's status by a kube-controller-manager, for [`super::QUIET`] after it was observed.
    pub service_write: Option<ServiceWrite>,
    /// The Services were read once, or cannot be read.
    pub services_read: bool,
    /// While this process holds M: the holder of K has changed since it acquired M. While the object cannot be read: since
    /// then, and [`UNREADABLE`] ago.
    pub main_holder_changed: bool,
    /// While this process holds M: the backoff since the last offer is over.
    pub offer_again: bool,
    /// M has been free, and K's holder the same, for [`YIELD`].
    pub yielded: bool,
}

/// A reason in the form of a condition's, and a sentence with what ends the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// `CamelCase`, for conditions.
    pub reason: &'static str,
    pub message: String,
}

impl Why {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// Compete for it, or keep it.
    Compete,
    /// Rollback step: compete when [`YIELD`] is over.
    Yield(Why),
    /// Do not compete.
    StandBy(Why),
    /// Stop and join the migrated controllers, then release M.
    Release(Why),
    /// Like `Release`, because a kube-controller-manager without leader migration runs, or writes.
    Alarm(Why),
}

impl LeaseAction {
    /// Why M is not competed for; none while it is.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Compete => None,
            Self::Yield(why) | Self::StandBy(why) | Self::Release(why) | Self::Alarm(why) => Some(why),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatchChange {
    /// The annotation stays as it is, also one of another object or of a newer program.
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
    pub warnings: Vec<String>,
}

/// Reasons of a [`Why`] that the status distinguishes.
pub mod reason {
    pub const NOT_READ_YET: &str = "NotReadYet";
    pub const OLD_MANAGER_OWNS: &str = "OldManagerOwns";
    pub const NO_OWNER: &str = "NoOwner";
    pub const EVIDENCE_MISSING: &str = "EvidenceMissing";
    pub const STORING_EVIDENCE: &str = "StoringEvidence";
    pub const STEPPING_BACK: &str = "SteppingBack";
    pub const UNGUARDED: &str = "UnguardedControllerManager";
    pub const SECOND_OWNER: &str = "SecondOwner";
    pub const MIGRATION_UNREADABLE: &str = "MigrationUnreadable";
    pub const LATCH_UNREADABLE: &str = "LatchUnreadable";
    pub const LEASE_IN_USE: &str = "LeaseInUse";
}

/// Another process holds M and renews it: neither this one nor its predecessor.
pub(super) fn held_by_other(inputs: &Inputs, bound: Option<&Latch>) -> bool {
    let predecessor = bound.and_then(|latch| latch.held_by.as_ref());
    let holder = inputs.facts.migration.live_holder.as_ref();
    holder.is_some_and(|holder| *holder != inputs.identity && Some(holder) != predecessor)
}

pub(super) fn after_yield(inputs: &Inputs) -> LeaseAction {
    if inputs.yielded {
        return LeaseAction::Compete;
    }
    let offered = || {
        format!(
            "the migration lease is offered to the kube-controller-managers; roll one of them in phase Prepare, or this manager acquires the lease again after {YIELD:?}"
        )
    };
    let message = evidence::unwatched_migration_lease(&inputs.facts).unwrap_or_else(offered);
    LeaseAction::Yield(Why::new(reason::STEPPING_BACK, message))
}

pub(super) fn changed(inputs: &Inputs, new: Latch) -> LatchChange {
    match &inputs.latch {
        Stored::Latch(old) if *old == new => LatchChange::Keep,
        _ => LatchChange::Store(new),
    }
}
