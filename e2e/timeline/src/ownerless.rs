//! Times in which no process owned the Service controller.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::input::Inputs;
use super::interval::governs;
use super::overlap::since;
use super::rules::{Controller, Rules, Side};
use super::status_record;
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

/// All times without an owner, in order. A process that is stopped by a signal owns nothing.
pub(super) fn ownerless(tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Ownerless> {
    let mut owned: Vec<_> = tenures
        .iter()
        .filter(|tenure| governs(tenure, Controller::Service, inputs, rules))
        .flat_map(|tenure| active(tenure, inputs).map(|(from, until)| (from, until, tenure.actor.side)))
        .collect();
    owned.sort();

    let mut found = Vec::new();
    let mut last: Option<(Timestamp, Side)> = None;
    for (from, until, side) in owned {
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
    let shown = status_record::in_force(&inputs.statements, middle);
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
    let of_process = inputs
        .pauses
        .iter()
        .filter(|pause| tenure.actor.names.contains(&pause.process));
    let mut pauses: Vec<_> = of_process
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
