//! The first latch: by the evidence of leader migration, or where no old manager owns anything.

use std::collections::BTreeMap;

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, MigrationSpec, Why, reason};
use crate::evidence::{self, ControllerManager, Facts};
use crate::latch::{self, Basis, Latch};
use crate::node_ipam;

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
                "{}; or, if none is in-tree any more, state that in spec.attestedPhase: {phase}",
                missing.message
            ),
        ));
    } else {
        return Err(missing);
    };

    if let Some(problem) = evidence::unlisted_leader(&inputs.facts)
        && !attested
    {
        let text = format!("{problem}, or state in spec.attestedPhase: {phase} that none is in-tree");
        return Err(Why::new(reason::EVIDENCE_MISSING, text));
    }

    if let Some(problem) = node_ipam::problem(&inputs.facts) {
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
#[must_use]
pub fn held_for_nothing(facts: &Facts) -> Option<&ControllerManager> {
    let holder = facts.migration.live_holder.as_ref()?;
    let all = facts.controller_managers.seen.iter();
    let mut left_on = all.clone().filter(|seen| seen.holds_for_nothing());
    if Some(holder) != facts.main.live_holder.as_ref() || all.clone().any(ControllerManager::is_guarded_and_running) {
        return left_on.find(|seen| seen.is_holder(holder));
    }
    left_on.next()
}
