//! The evidence that is checked again before M is acquired for the first time.

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, LeaseAction, Why, reason};
use crate::evidence::{self, Facts};
use crate::latch::Latch;

/// The latch was stored while an old manager held M, and a command line may have changed since then. After the first
/// acquisition only a running process without leader migration counts: somebody has to own the controllers.
pub(super) fn compete(inputs: &Inputs, latch: &Latch) -> LeaseAction {
    if inputs.holding || latch.held_by.is_some() {
        return LeaseAction::Compete;
    }

    let mut all = inputs.facts.controller_managers.seen.iter();
    if let Some(template) = all.find(|seen| seen.is_unguarded()) {
        let text = format!(
            "{} has no leader migration, and its next Pod would run in-tree: apply phase Prepare to it",
            template.object
        );
        return LeaseAction::StandBy(Why::new(reason::UNGUARDED, text));
    }

    let contradictions = contradictions(inputs);
    if !contradictions.is_empty() {
        return LeaseAction::StandBy(Why::new(reason::EVIDENCE_MISSING, contradictions.join("; ")));
    }

    LeaseAction::Compete
}

/// A readable fact that contradicts the latch, unless the operator attests otherwise.
fn contradictions(inputs: &Inputs) -> Vec<String> {
    let facts = &inputs.facts;
    if facts.attested_phase == Some(Phase::Prepare) {
        return Vec::new();
    }

    let mut contradictions = evidence::unproven_configurations(facts);
    let phase = inputs.spec.known().map(|spec| spec.phase);
    let is_attested = phase.is_some() && facts.attested_phase == phase;
    let is_readable = facts.controller_managers.unreadable.is_empty();
    if is_readable && !is_attested && !leader_had_migration_lease(facts) {
        let attest = phase.map_or_else(String::new, |phase| {
            format!(", or state in spec.attestedPhase: {phase} that none is in-tree")
        });
        contradictions.extend(evidence::unlisted_leader(facts).map(|problem| format!("{problem}{attest}")));
    }

    contradictions
}

/// A process that acquired M has leader migration on. In the handover its Pod is gone before its leases expire.
fn leader_had_migration_lease(facts: &Facts) -> bool {
    facts.main.live_holder.is_some() && facts.main.live_holder == facts.migration.named_holder
}
