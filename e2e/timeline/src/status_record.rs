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
