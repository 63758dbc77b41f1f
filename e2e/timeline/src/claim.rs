//! The claims of the status's conditions about leases and processes. Pure.
//!
//! A claim follows from the type, the status and the reason of a condition, never from its message.

use std::fmt;

/// A claim about the environment. "Our manager" is any manager of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Owned,
    InTreeLeft,
    OldManagerOwns,
    NoOwner,
    MainLeaseNotHeld,
    OtherHoldsM,
    UnguardedLeads,
    Unlocked,
    LeaderNotProven,
    NewLeader,
    SteppingBack,
    NotLed,
    MigrationLeaseFree,
    NotAcquired,
    EvidenceMissing,
    WritesNothing,
    Prepared,
    Completed,
    Ready,
    PhaseFollowed,
    /// About kubelets, stored objects, versions or the spec alone.
    NotRecorded,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "our manager holds M, and no process acts without M",
            Self::InTreeLeft => "our manager holds M, and an old manager is in-tree",
            Self::OldManagerOwns => "an old manager owns the controllers",
            Self::NoOwner => "no process owns the controllers",
            Self::MainLeaseNotHeld => "no process holds K, and our manager writes nothing",
            Self::OtherHoldsM => "a process that does not lead our managers holds M",
            Self::UnguardedLeads => "the holder of K acts without M, and our manager writes nothing and gives up M",
            Self::Unlocked => "a process acts without K, and our manager writes nothing and gives up M",
            Self::LeaderNotProven => "a process holds K, and our manager writes nothing and gives up M",
            Self::NewLeader => "K changed hands, and our manager writes nothing until it knows the holder",
            Self::SteppingBack => "our manager holds M for the old one, or offers it",
            Self::NotLed => "no manager of ours leads",
            Self::MigrationLeaseFree => "no process holds M",
            Self::NotAcquired => "our manager does not hold M",
            Self::EvidenceMissing => "our manager may not take over from the old one",
            Self::WritesNothing => "our manager writes nothing",
            Self::Prepared => "no process acts without M",
            Self::Completed => "the phase is Complete, and our manager owns the controllers",
            Self::Ready => "the owner is the one that the phase requires",
            Self::PhaseFollowed => "our manager follows the phase of the spec",
            Self::NotRecorded => "nothing that is recorded",
        })
    }
}

impl Claim {
    pub const ALL: [Self; 21] = [
        Self::Owned,
        Self::InTreeLeft,
        Self::OldManagerOwns,
        Self::NoOwner,
        Self::MainLeaseNotHeld,
        Self::OtherHoldsM,
        Self::UnguardedLeads,
        Self::Unlocked,
        Self::LeaderNotProven,
        Self::NewLeader,
        Self::SteppingBack,
        Self::NotLed,
        Self::MigrationLeaseFree,
        Self::NotAcquired,
        Self::EvidenceMissing,
        Self::WritesNothing,
        Self::Prepared,
        Self::Completed,
        Self::Ready,
        Self::PhaseFollowed,
        Self::NotRecorded,
    ];

    /// The claim of a condition; `None` if its reason is not in this list.
    pub fn of(kind: &str, status: &str, reason: &str) -> Option<Self> {
        Some(match (kind, status, reason) {
            ("ControlPlaneMigrated", "True", "Migrated") => Self::Owned,
            ("ControlPlaneMigrated", "True", _) => return None,
            ("ControlPlaneMigrated", _, "Migrated") => return None,
            ("ControlPlaneMigrated", _, _) => Self::of_control_plane(reason)?,

            ("Prepared", "True", "EvidenceLatched") => Self::Prepared,
            ("Prepared", "False", "EvidenceMissing") => Self::EvidenceMissing,
            ("Completed", "True", "Completed") => Self::Completed,
            ("Completed", "False", "NotYet") => Self::NotRecorded,
            ("Completed" | "PhaseFollowed", "Unknown", "NotLed") => Self::NotLed,

            // The status alone is the claim.
            ("Ready", "True", _) => Self::Ready,
            ("PhaseFollowed", "True", _) => Self::PhaseFollowed,
            ("PhaseFollowed", ..) => Self::NotRecorded,
            ("Ready" | "Reconciling" | "Stalled", ..) => Self::of_summary(reason)?,

            ("SpecValid", _, "Valid" | "Invalid" | "NotReadable")
            | ("NodesMigrated", _, "Migrated" | "KubeletsLeft" | "NotCounted" | "NoNodes")
            | ("RollbackPossible", _, "InTreeAvailable" | "InTreeRemoved" | "VersionUnknown")
            | ("AdoptionClean", _, "NotLed" | "NotCompared" | "DryRunFailed" | "NoChanges" | "ChangesExpected")
            | ("ObjectsApplied", _, "AllApplied" | "Missed" | "NotReadable")
            | ("WebhookRegistered", _, "Registered" | "RegistrationDiffers") => Self::NotRecorded,
            _ => return None,
        })
    }

    fn of_control_plane(reason: &str) -> Option<Self> {
        Some(match reason {
            "OldManagerOwns" => Self::OldManagerOwns,
            "NoOwner" => Self::NoOwner,
            "MainLeaseNotHeld" => Self::MainLeaseNotHeld,
            "LeaseInUse" | "LeaseHeldByOther" | "HeldForNothing" => Self::OtherHoldsM,
            "UnguardedControllerManager" => Self::UnguardedLeads,
            "UnlockedControllerManager" => Self::Unlocked,
            "LeaderNotProven" => Self::LeaderNotProven,
            "Listing" | "NewLeader" => Self::NewLeader,
            "SteppingBack" => Self::SteppingBack,
            "NotLed" => Self::NotLed,
            "Acquiring" => Self::MigrationLeaseFree,
            "EvidenceMissing" | "StoringEvidence" | "LeaseRequestFailed" | "MigrationUnreadable" => Self::NotAcquired,
            "NotReadYet" => Self::WritesNothing,
            "InTreeLeft" => Self::InTreeLeft,
            "NodeIpamConflict" | "LeaderMigrationLeftOn" | "Undecided" | "NotReadable" => Self::Owned,
            _ => return None,
        })
    }

    /// A condition that repeats the reason of another one, which may be of any type.
    fn of_summary(reason: &str) -> Option<Self> {
        Some(match reason {
            "EvidenceMissing" => Self::EvidenceMissing,
            "EvidenceLatched" => Self::Prepared,
            "Migrated" | "KubeletsLeft" => Self::Owned,
            "Completed" => Self::Completed,
            "NotCounted" | "NoNodes" | "Ready" | "Reconciling" | "Stalled" => Self::NotRecorded,
            "Followed" | "InTreeNotFollowed" | "SpecNotFollowed" => Self::NotRecorded,
            _ => Self::of_control_plane(reason)?,
        })
    }

    /// Whether our manager also claims that it writes nothing.
    pub(super) fn writes_nothing(self) -> bool {
        let stops = matches!(self, Self::MainLeaseNotHeld | Self::NewLeader | Self::WritesNothing);
        stops || self.releases()
    }

    /// Whether our manager also claims that it gives up M if it holds it: it releases M, or leaves M to expire.
    pub(super) fn releases(self) -> bool {
        matches!(self, Self::UnguardedLeads | Self::Unlocked | Self::LeaderNotProven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_each_claim() {
        assert_eq!(Claim::ALL.len(), Claim::NotRecorded as usize + 1);
        assert!(
            Claim::ALL
                .iter()
                .enumerate()
                .all(|(index, claim)| *claim as usize == index)
        );
    }

    /// The codes in the first cell, and the second cell, of each row below a heading of the page about the status.
    fn rows(heading: &str) -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
        let page = include_str!("../../../docs/status.md");
        let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap();
        let section = rest.split("\n#").next().unwrap();
        let lines = section.lines().filter(|line| line.starts_with("| `"));
        let codes = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
        let cells = lines.map(|line| line.split('|').collect::<Vec<_>>());
        cells.map(|cells| (codes(cells[1]), codes(cells[2]))).collect()
    }

    #[test]
    fn each_reason_of_the_page_about_the_status_has_a_claim() {
        let has_claim = |kind: &str, reason: &str| {
            let mut all = ["True", "False", "Unknown"].into_iter();
            assert!(
                all.any(|status| Claim::of(kind, status, reason).is_some()),
                "{kind}: {reason}"
            );
        };
        let of_ready = rows("### Reasons of Ready");
        let of_ready: Vec<&str> = of_ready.iter().flat_map(|(reasons, _)| reasons.clone()).collect();
        of_ready.iter().for_each(|reason| has_claim("Ready", reason));
        for kind in ["Reconciling", "Stalled"] {
            let has_one = |reason: &&str| Claim::of(kind, "True", reason).is_some();
            assert!(of_ready.iter().all(has_one), "{kind}");
        }

        let others = rows("### Reasons of the other conditions");
        for (codes, kinds) in &others {
            let pairs = kinds.iter().flat_map(|kind| codes.iter().map(move |code| (kind, code)));
            pairs.for_each(|(kind, code)| has_claim(kind, code));
        }
        assert!(of_ready.len() >= 30 && others.len() >= 8, "{of_ready:?}");
    }
}
