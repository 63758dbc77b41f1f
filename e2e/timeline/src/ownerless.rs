//! Times in which no process owned the Service controller.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::input::Inputs;
use super::interval::governs;
use super::overlap::since;
use super::rules::{Controller, Rules, Side};
use super::tenure::Tenure;

/// The condition that says who holds the migration lease.
const CONDITION: &str = "ControlPlaneMigrated";

/// A time without an owner, after the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownerless {
    pub from: Timestamp,
    /// When the next owner acquired its lease, or the end of the run.
    pub until: Timestamp,
    pub before: Side,
    /// `None` at the end of the run.
    pub after: Option<Side>,
    /// Reason and message of the condition `ControlPlaneMigrated` in the middle of this time.
    pub shown: Option<String>,
}

impl Ownerless {
    pub fn length(&self) -> Duration {
        since(self.from, self.until)
    }

    /// False between two processes of the old side, such as in a rollout in phase Prepare.
    pub fn concerns_ours(&self) -> bool {
        self.before != Side::Old || self.after != Some(Side::Old)
    }
}

/// A time in which a process owned a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub from: Timestamp,
    pub until: Timestamp,
    pub side: Side,
    /// The names of the process.
    pub label: String,
}

/// The owners of a controller, in order. A process that is stopped by a signal owns nothing.
pub(super) fn owned(controller: Controller, tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Owned> {
    let mut owned: Vec<Owned> = tenures
        .iter()
        .filter(|tenure| governs(tenure, controller, inputs, rules))
        .flat_map(|tenure| {
            active(tenure, inputs).map(|(from, until)| Owned {
                from,
                until,
                side: tenure.actor.side,
                label: tenure.actor.label(),
            })
        })
        .collect();
    owned.sort_by_key(|owned| (owned.from, owned.until, owned.side));

    owned
}

/// All times without an owner, in order.
pub(super) fn ownerless(tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Ownerless> {
    let owned = owned(Controller::Service, tenures, inputs, rules);
    let mut found = Vec::new();
    let mut last: Option<(Timestamp, Side)> = None;
    for Owned { from, until, side, .. } in owned {
        match last {
            Some((end, before)) if end < from => found.push(gap((end, before), (from, Some(side)), inputs)),
            _ => {}
        }
        if last.is_none_or(|(end, _)| end < until) {
            last = Some((until, side));
        }
    }

    let end = last.filter(|(end, _)| *end < inputs.until);
    found.extend(end.map(|last| gap(last, (inputs.until, None), inputs)));
    found
}

fn gap(last: (Timestamp, Side), next: (Timestamp, Option<Side>), inputs: &Inputs) -> Ownerless {
    let middle = last.0 + last.0.duration_until(next.0) / 2;
    let shown = inputs.statement_at(middle);
    Ownerless {
        from: last.0,
        until: next.0,
        before: last.1,
        after: next.1,
        shown: shown.and_then(|said| said.condition(CONDITION)),
    }
}

/// The parts of a tenure in which its process was not stopped by a signal.
fn active(tenure: &Tenure, inputs: &Inputs) -> impl Iterator<Item = (Timestamp, Timestamp)> {
    let mut pauses: Vec<_> = inputs
        .pauses_of(&tenure.actor.names)
        .map(|pause| (pause.from, pause.until.unwrap_or(inputs.until)))
        .collect();
    pauses.sort();

    let starts = [tenure.from]
        .into_iter()
        .chain(pauses.iter().map(|pause| pause.1.max(tenure.from)));
    let ends = pauses
        .iter()
        .map(|pause| pause.0.min(tenure.until))
        .chain([tenure.until]);
    let parts: Vec<_> = starts.zip(ends).filter(|(from, until)| from < until).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Pause;
    use crate::rules::Component;
    use crate::samples::{at, process, tenure};
    use outrigger_cluster_harness::leases::Lease;

    fn inputs() -> Inputs {
        let (kcm, ours) = ("kube-controller-manager", "outrigger-manager");
        Inputs {
            processes: vec![
                process("kcm", kcm, &["--cloud-provider=aws"], 0, None),
                process("ours", ours, &["--migration=prod"], 0, None),
            ],
            until: at(100),
            ..Inputs::default()
        }
    }

    fn gaps(inputs: &Inputs, tenures: &[Tenure]) -> Vec<(i64, i64, Side, Option<Side>)> {
        let rules = Rules::new(Component::outrigger_manager());
        let found = ownerless(tenures, inputs, &rules);
        found
            .iter()
            .map(|gap| (gap.from.as_second(), gap.until.as_second(), gap.before, gap.after))
            .collect()
    }

    #[test]
    fn a_time_without_an_owner_is_between_two_tenures_of_the_lease_that_governs() {
        let (old, new) = (Side::Old, Side::New);
        let k = |from, until| tenure(Lease::K, "kcm", old, (from, until));
        let m = |from, until| tenure(Lease::M, "ours", new, (from, until));
        let inputs = inputs();
        assert_eq!(gaps(&inputs, &[]), []);
        assert_eq!(gaps(&inputs, &[k(5, 10), m(14, 100)]), [(10, 14, old, Some(new))]);
        assert_eq!(gaps(&inputs, &[k(5, 10), m(10, 100)]), []);
        assert_eq!(
            gaps(&inputs, &[k(5, 50), m(10, 20), m(60, 100)]),
            [(50, 60, old, Some(new))]
        );
        assert_eq!(gaps(&inputs, &[m(5, 90)]), [(90, 100, new, None)]);
        let first_of_two = [k(5, 50), m(10, 50)];
        assert_eq!(gaps(&inputs, &first_of_two), [(50, 100, old, None)]);
        let main = tenure(Lease::C, "ours", new, (0, 100));
        assert_eq!(
            gaps(&inputs, &[k(5, 10), main]),
            [(10, 100, old, None)],
            "C guards nothing here"
        );
    }

    #[test]
    fn a_process_that_is_stopped_by_a_signal_owns_nothing() {
        let mut inputs = inputs();
        let pause = |from, until: Option<i64>| Pause {
            process: "ours".into(),
            from: at(from),
            until: until.map(at),
        };
        let (new, tenures) = (Side::New, [tenure(Lease::M, "ours", Side::New, (10, 100))]);
        inputs.pauses = vec![pause(40, Some(50)), pause(20, Some(30)), pause(0, Some(5))];
        assert_eq!(
            gaps(&inputs, &tenures),
            [(20, 30, new, Some(new)), (40, 50, new, Some(new))]
        );
        inputs.pauses = vec![pause(40, None)];
        assert_eq!(gaps(&inputs, &tenures), [(40, 100, new, None)]);
        inputs.pauses[0].process = "kcm".into();
        assert_eq!(gaps(&inputs, &tenures), []);
    }

    #[test]
    fn a_gap_between_two_old_managers_does_not_concern_ours() {
        let gap = |before, after| Ownerless {
            from: at(3),
            until: at(5),
            before,
            after,
            shown: None,
        };
        assert_eq!(gap(Side::Old, None).length(), Duration::from_secs(2));
        assert!(!gap(Side::Old, Some(Side::Old)).concerns_ours());
        assert!(gap(Side::Old, Some(Side::New)).concerns_ours());
        assert!(gap(Side::New, Some(Side::Old)).concerns_ours());
        assert!(gap(Side::Old, None).concerns_ours());
    }
}
