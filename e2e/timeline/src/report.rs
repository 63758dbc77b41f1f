//! The result of the timeline.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::aws_effects::{Joined, LateEffect};
use super::handover::HandOver;
use super::input::{AwsCall, Marker, Snapshot};
use super::interval::Interval;
use super::overlap::{self, Overlap, milliseconds};
use super::ownerless::{Owned, Ownerless};
use super::rules::{Controller, Rules, Side};
use super::status_record::Contradiction;
use super::tenure::Tenure;

#[derive(Debug, Clone)]
pub struct Report {
    /// Zero of the table's clock.
    pub start: Timestamp,
    pub until: Timestamp,
    /// Service, node lifecycle and route, in this order.
    pub controllers: [ControllerTimeline; 3],
    pub tenures: Vec<Tenure>,
    pub hand_overs: Vec<HandOver>,
    /// AWS writes of our manager that nothing called for.
    pub writes_by_switch: Vec<AwsCall>,
    /// Load balancers that are gone or are others under the same name.
    pub recreated: BTreeSet<String>,
    /// Load balancer and target, for each target that went.
    pub lost_targets: BTreeSet<(String, String)>,
    /// Table and range of each route to an instance that went.
    pub lost_routes: BTreeSet<String>,
    /// The owners of each controller, in the order of `controllers`, by the leases that guard it.
    pub owners: [Vec<Owned>; 3],
    /// Times without an owner of the Service controller.
    pub ownerless: Vec<Ownerless>,
    /// Statements of the status that were not true.
    pub contradictions: Vec<Contradiction>,
    /// AWS writes of our manager without the lease that guards the controller.
    pub writes_without_lease: Vec<AwsCall>,
    /// AWS writes of either side that were carried out after another process acquired the lease.
    pub late_effects: Vec<LateEffect>,
    pub joined: Vec<Joined>,
    /// User agents of programs of either side that wrote Services under a name that no controller is known by.
    pub(super) overlooked: BTreeSet<String>,
    pub(super) markers: Vec<Marker>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) rules: Rules,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerTimeline {
    pub controller: Controller,
    pub intervals: Vec<Interval>,
    /// Times with two owners, whoever is at fault.
    pub overlaps: Vec<Overlap>,
}

impl ControllerTimeline {
    /// How long the controller had two owners through the fault of a process that is not on the old side.
    ///
    /// A Go manager that was stopped and continued keeps running for up to its renew deadline after it lost its lease:
    /// that is counted separately, in [`ControllerTimeline::overlap_by_old_side`].
    pub fn overlap(&self) -> Duration {
        overlap::length(self.overlaps_by_others())
    }

    /// How long the controller had two owners through the fault of the old side.
    pub fn overlap_by_old_side(&self) -> Duration {
        let by_old = |overlap: &&Overlap| overlap.caused_by.side == Side::Old;
        overlap::length(self.overlaps.iter().filter(by_old))
    }

    /// The overlaps through the fault of a process that is not on the old side.
    pub(super) fn overlaps_by_others(&self) -> impl Iterator<Item = &Overlap> {
        let overlaps = self.overlaps.iter();
        overlaps.filter(|overlap| overlap.caused_by.side != Side::Old)
    }
}

/// The five figures of the proof line, named as it names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Milliseconds with two owners, summed over the controllers.
    pub overlap_ms: u64,
    /// Milliseconds without an owner of M from the old process's end on, the longest; `None` when ours never took
    /// over.
    pub gap_ms: Option<u64>,
    /// AWS writes of our manager on objects whose desired state did not change.
    pub aws_writes_by_switch: usize,
    /// Load balancers that are gone or others.
    pub load_balancers_recreated: usize,
    /// Targets that went, each per load balancer.
    pub targets_lost: usize,
}

impl Report {
    pub fn figures(&self) -> Figures {
        let overlap: Duration = self.controllers.iter().map(ControllerTimeline::overlap).sum();
        Figures {
            overlap_ms: milliseconds(overlap),
            gap_ms: self
                .taken_over()
                .filter_map(|hand_over| hand_over.gap)
                .max()
                .map(milliseconds),
            aws_writes_by_switch: self.writes_by_switch.len(),
            load_balancers_recreated: self.recreated.len(),
            targets_lost: self.lost_targets.len(),
        }
    }

    /// Hand-overs from the old side to ours.
    pub fn taken_over(&self) -> impl Iterator<Item = &HandOver> {
        self.hand_overs
            .iter()
            .filter(|hand_over| hand_over.from.side == Side::Old && hand_over.to.side == Side::New)
    }

    /// The longest time without an owner between two processes of the old side: the new one waits until the lease of the
    /// other has expired.
    pub fn longest_roll(&self) -> Option<Duration> {
        let rolls = self.ownerless.iter().filter(|time| !time.concerns_ours());
        rolls.map(Ownerless::length).max()
    }

    pub(super) fn acquired_by_ours(&self) -> impl Iterator<Item = &HandOver> {
        self.hand_overs
            .iter()
            .filter(|hand_over| hand_over.to.side == Side::New)
    }

    pub fn controller(&self, controller: Controller) -> Option<&ControllerTimeline> {
        self.controllers
            .iter()
            .find(|timeline| timeline.controller == controller)
    }

    /// The last line of a run: `proof: {"overlap_ms":…,"gap_ms":…,"aws_writes_by_switch":…,…}`.
    pub fn proof_line(&self) -> String {
        let figures = self.figures();
        let gap = figures.gap_ms.map_or_else(|| "null".into(), |gap| gap.to_string());
        format!(
            r#"proof: {{"overlap_ms":{},"gap_ms":{gap},"aws_writes_by_switch":{},"load_balancers_recreated":{},"targets_lost":{}}}"#,
            figures.overlap_ms, figures.aws_writes_by_switch, figures.load_balancers_recreated, figures.targets_lost,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse;
    use crate::input::Inputs;
    use crate::rules::Component;
    use crate::samples::hand_over;

    #[test]
    fn the_gap_of_the_proof_line_is_that_of_handovers_from_the_old_side_to_ours() {
        let (old, new) = (Side::Old, Side::New);
        let mut report = analyse(&Inputs::default(), &Rules::new(Component::outrigger_manager()));
        report.hand_overs = [
            (old, new, 1),
            (old, new, 2),
            (new, new, 3),
            (old, old, 4),
            (new, old, 5),
        ]
        .map(|(from, to, seconds)| hand_over(from, to, Some(Duration::from_secs(seconds))))
        .into();
        assert_eq!(report.figures().gap_ms, Some(2_000));
        assert_eq!(report.taken_over().count(), 2);
    }
}
