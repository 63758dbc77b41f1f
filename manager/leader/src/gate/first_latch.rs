//! The first latch: by the evidence of leader migration, or where no old manager owns anything. And the evidence that is
//! checked again before M is acquired for the first time.

use std::collections::BTreeMap;

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, LeaseAction, MigrationSpec, Why, reason};
use crate::evidence::{self, ControllerManager, Facts};
use crate::latch::{self, Basis, Latch};

/// A latch by complete evidence of leader migration; otherwise what is missing.
pub(super) fn gathered(inputs: &Inputs, spec: &MigrationSpec, phase: Phase) -> Result<Latch, Why> {
    let missing = evidence::missing(&inputs.facts);
    if !missing.is_empty() {
        return Err(Why::new(reason::EVIDENCE_MISSING, missing.join("; ")));
    }

    let basis = match inputs.facts.controller_managers.are_all_readable() {
        true => Basis::LeaderMigration,
        false => Basis::Attested,
    };

    Ok(new_latch(spec, phase, basis, None))
}

/// A latch where no old manager owns anything: all are external, or the operator says so for this phase, and nobody
/// renewed M for a full lease duration while this process watched it. `missing` is what the other kind of evidence lacks.
pub(super) fn without_old_manager(
    inputs: &Inputs,
    spec: &MigrationSpec,
    phase: Phase,
    missing: Why,
) -> Result<Latch, Why> {
    let all = &inputs.facts.controller_managers;
    let attested = inputs.facts.attested_phase == Some(phase);
    let may_be_external = |seen: &ControllerManager| seen.is_external() || seen.needs_attestation();
    let basis = if all.are_all_external() {
        Basis::External
    } else if attested && all.seen.iter().all(may_be_external) {
        Basis::Attested
    } else if !all.are_all_readable() && all.seen.iter().all(may_be_external) {
        return Err(Why::new(
            reason::EVIDENCE_MISSING,
            format!(
                "{}; or, if none is in-tree any more, attest that with spec.attestedPhase: {phase}",
                missing.message
            ),
        ));
    } else {
        return Err(missing);
    };

    if let Some(problem) = evidence::unlisted_leader(&inputs.facts)
        && !attested
    {
        let text = format!("{problem}, or set spec.attestedPhase: {phase} to attest that none is in-tree");
        return Err(Why::new(reason::EVIDENCE_MISSING, text));
    }

    if let Some(problem) = evidence::node_ipam_problem(&inputs.facts) {
        return Err(Why::new(reason::EVIDENCE_MISSING, problem));
    }
    if !inputs.facts.migration.idle {
        return Err(lease_in_use(inputs));
    }

    Ok(new_latch(spec, phase, basis, None))
}

pub(super) fn new_latch(spec: &MigrationSpec, phase: Phase, basis: Basis, held_by: Option<String>) -> Latch {
    Latch {
        version: latch::VERSION,
        uid: spec.uid.clone(),
        generation: spec.generation,
        phase,
        basis,
        held_by,
        held_since: None,
        main_holder: None,
        superseded: false,
        other: BTreeMap::new(),
    }
}

fn lease_in_use(inputs: &Inputs) -> Why {
    let facts = &inputs.facts;
    let holder = facts.migration.live_holder.as_deref();
    if let Some(seen) = held_for_nothing(facts) {
        return Why::new(
            reason::LEASE_IN_USE,
            format!(
                "the migration lease is held by {:?}, and {} runs no cloud controller: remove its --enable-leader-migration",
                holder.unwrap_or_default(),
                seen.object
            ),
        );
    }
    let message = match holder {
        Some(holder) => {
            format!("the migration lease is held by {holder:?}: stop that process, or wait until it releases it")
        }
        None => evidence::unwatched_migration_lease(facts).unwrap_or_else(|| {
            "every old manager is external; waiting until the migration lease has been idle for its full duration"
                .to_owned()
        }),
    };
    Why::new(reason::LEASE_IN_USE, message)
}

/// The external kube-controller-manager that holds K and M and runs nothing under M.
pub fn held_for_nothing(facts: &Facts) -> Option<&ControllerManager> {
    let holder = facts.migration.live_holder.as_ref()?;
    let all = facts.controller_managers.seen.iter();
    let mut left_on = all.clone().filter(|seen| seen.holds_for_nothing());
    if Some(holder) != facts.main.live_holder.as_ref() || all.clone().any(ControllerManager::is_guarded_and_running) {
        return left_on.find(|seen| seen.is_holder(holder));
    }
    left_on.next()
}

/// The latch was stored while an old manager held M, and a command line may have changed since then. After the first
/// acquisition only a running process without leader migration counts: somebody has to own the controllers. The watch of
/// M may show the acquisition before the answer to the request, so before this process counts as its holder.
pub(super) fn compete(inputs: &Inputs, latch: &Latch) -> LeaseAction {
    let is_acquired = inputs.facts.migration.live_holder.as_ref() == Some(&inputs.identity);
    if inputs.holding || is_acquired || latch.held_by.is_some() {
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
            format!(", or set spec.attestedPhase: {phase} to attest that none is in-tree")
        });
        contradictions.extend(evidence::unlisted_leader(facts).map(|problem| format!("{problem}{attest}")));
    }

    contradictions
}

/// A process that acquired M has leader migration on. In the handover its Pod is gone before its leases expire.
fn leader_had_migration_lease(facts: &Facts) -> bool {
    facts.main.live_holder.is_some() && facts.main.live_holder == facts.migration.named_holder
}
