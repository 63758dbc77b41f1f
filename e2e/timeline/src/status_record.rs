//! Statements of the migration object's status that the other records contradict.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::input::{Inputs, Statement};
use super::interval::governs;
use super::overlap::since;
use super::rules::{Controller, Rules, Side};
use super::tenure::Tenure;
use outrigger_cluster_harness::leases::Lease;

/// The writer collects reports for 200 ms, and the record of the lease and of the status come from two watches.
const WRITING: SignedDuration = SignedDuration::from_secs(2);
/// A writer that lives corrects its status within this: the period of a status without another reason to write, and one
/// request.
const CORRECTION: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    pub at: Timestamp,
    /// The statement, and the contradicting record.
    pub text: String,
}

pub(super) fn contradictions(tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Contradiction> {
    let mut statements: Vec<_> = inputs
        .statements
        .iter()
        .filter(|said| said.at <= inputs.until)
        .collect();
    // The webhook writes conditions of its own into the same status.
    statements.dedup_by_key(|said| (said.owner, said.holder.as_ref()));
    let ends = statements.iter().skip(1).map(|next| next.at).chain([inputs.until]);

    let both = statements.iter().zip(ends);
    both.filter_map(|(said, end)| contradiction(said, end, tenures, inputs, rules))
        .collect()
}

fn contradiction(
    said: &Statement,
    end: Timestamp,
    tenures: &[Tenure],
    inputs: &Inputs,
    rules: &Rules,
) -> Option<Contradiction> {
    let side = said.owner?;
    let owned: Vec<_> = tenures
        .iter()
        .filter(|tenure| tenure.actor.side == side && governs(tenure, Controller::Service, inputs, rules))
        .filter(|tenure| said.holder.as_ref().is_none_or(|holder| tenure.holder == *holder))
        .collect();

    let holder = said.holder.as_deref().unwrap_or("unknown holder");
    let contradicted = |text: String| Some(Contradiction { at: said.at, text });
    let when_written = owned
        .iter()
        .any(|tenure| tenure.from <= said.at + WRITING && said.at - WRITING <= lease_ended(tenure));
    if !when_written {
        return contradicted(format!(
            "the status named {holder} ({side:?}) as the owner, which held no lease of it then"
        ));
    }

    let ended = owned
        .iter()
        .filter(|tenure| tenure.from <= end)
        .map(|tenure| tenure.until)
        .max()?;
    let stale = since(ended.max(said.at), end);
    let has_writer = tenures.iter().any(|tenure| {
        let of_c = tenure.lease == Lease::C && tenure.actor.side == Side::New;
        of_c && since(tenure.from, end) > CORRECTION && tenure.from <= end && end <= tenure.until
    });
    if stale > CORRECTION && has_writer {
        return contradicted(format!(
            "the status still named {holder} ({side:?}) as the owner {} s after its lease ended",
            stale.as_secs()
        ));
    }

    None
}

/// When the holder lost the lease. The end of its process shows nowhere in the lease: it is held until it expires.
fn lease_ended(tenure: &Tenure) -> Timestamp {
    if tenure.process_ended == Some(tenure.until) && tenure.released.is_none() {
        tenure.expires.max(tenure.until)
    } else {
        tenure.until
    }
}

/// The statement in force at a moment.
pub(super) fn in_force(statements: &[Statement], at: Timestamp) -> Option<&Statement> {
    statements.iter().rev().find(|said| said.at <= at)
}

impl Statement {
    /// A condition as `Reason: message`; none where the status does not have it.
    pub fn condition(&self, kind: &str) -> Option<String> {
        let found = self.conditions.iter().find(|condition| condition.kind == kind)?;
        Some(format!("{}: {}", found.reason, found.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Component;
    use crate::samples::{at, tenure};

    /// Whether a status that names the holder of M is contradicted. It is written at one second and replaced at the other.
    fn is_contradicted(written: i64, replaced: i64, tenures: &[Tenure]) -> bool {
        let said = Statement {
            at: at(written),
            owner: Some(Side::New),
            holder: Some("ours_a".into()),
            conditions: Vec::new(),
        };
        let rules = Rules::new(Component::outrigger_manager());
        contradiction(&said, at(replaced), tenures, &Inputs::default(), &rules).is_some()
    }

    #[test]
    fn a_status_may_name_a_holder_two_seconds_before_its_acquisition_and_after_its_end() {
        let held = [tenure(Lease::M, "ours", Side::New, (10, 30))];
        for (second, expected) in [(7, true), (8, false), (10, false), (30, false), (32, false), (33, true)] {
            assert_eq!(is_contradicted(second, second + 1, &held), expected, "{second}");
        }
    }

    #[test]
    fn a_status_may_be_wrong_for_twenty_seconds_after_the_end_of_the_lease() {
        let held = tenure(Lease::M, "ours", Side::New, (10, 30));
        let writer = tenure(Lease::C, "next", Side::New, (0, 100));
        let tenures = [held, writer];
        for (replaced, expected) in [(40, false), (50, false), (51, true)] {
            assert_eq!(is_contradicted(20, replaced, &tenures), expected, "{replaced}");
        }
    }

    #[test]
    fn a_wrong_status_is_contradicted_only_when_its_writer_led_for_more_than_twenty_seconds() {
        for (acquired, until, expected) in [(39, 60, true), (40, 60, false), (39, 59, false), (61, 90, false)] {
            let held = tenure(Lease::M, "ours", Side::New, (10, 30));
            let writer = tenure(Lease::C, "next", Side::New, (acquired, until));
            assert_eq!(
                is_contradicted(20, 60, &[held, writer]),
                expected,
                "{acquired} to {until}"
            );
        }
    }

    #[test]
    fn a_lease_outlives_its_process_until_it_expires_and_ends_at_once_otherwise() {
        let ended = |process_ended: Option<i64>, released: Option<i64>| {
            lease_ended(&Tenure {
                process_ended: process_ended.map(at),
                released: released.map(at),
                expires: at(45),
                ..tenure(Lease::M, "ours", Side::New, (10, 30))
            })
        };
        assert_eq!(ended(Some(30), None), at(45));
        assert_eq!(ended(Some(30), Some(30)), at(30), "released");
        assert_eq!(ended(None, None), at(30), "deleted or acquired by another process");
        assert_eq!(ended(Some(40), None), at(30), "the process ended later");
    }
}
