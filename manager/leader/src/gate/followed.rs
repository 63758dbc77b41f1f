//! Which latch and which phase the decision follows.

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, LatchChange, MigrationSpec, held_by_other};
use crate::evidence::{self, Reading};
use crate::latch::{Latch, Stored};

/// The latch, if it belongs to the current object and is not outdated. An object that was deleted and created again
/// starts without a latch, unless this process holds M: then the latch stays valid and gets the new UID.
pub(super) fn binding_latch(inputs: &Inputs) -> Option<Latch> {
    let Stored::Latch(latch) = &inputs.latch else {
        return None;
    };
    let Reading::Known(spec) = &inputs.spec else {
        return (!latch.superseded).then(|| latch.clone());
    };
    if spec.uid != latch.uid {
        return inputs.holding.then(|| Latch {
            uid: spec.uid.clone(),
            generation: spec.generation,
            ..latch.clone()
        });
    }

    is_current(inputs, spec, latch).then(|| latch.clone())
}

/// Marks the latch of an object that was created again, so that nobody follows it when the new object cannot be read. It
/// is not removed: it may belong to another object, and this manager's `--migration` may be the wrong one.
pub(super) fn supersede(inputs: &Inputs) -> LatchChange {
    match (&inputs.latch, &inputs.spec) {
        (Stored::Latch(latch), Reading::Known(spec))
            if spec.uid != latch.uid && !inputs.holding && !latch.superseded =>
        {
            LatchChange::Store(Latch {
                superseded: true,
                ..latch.clone()
            })
        }
        _ => LatchChange::Keep,
    }
}

/// Whether the latch says what the object's history was. While no manager ran, the phase may have passed InTree, and the
/// old managers may have their original flags again. Command lines show that; without them, one unobserved change is at
/// most one step.
fn is_current(inputs: &Inputs, spec: &MigrationSpec, latch: &Latch) -> bool {
    inputs.holding
        || spec.generation <= latch.generation + 1
        || inputs.facts.controller_managers.are_all_readable()
        || inputs.facts.attested_phase == Some(spec.phase)
}

pub(super) fn outdated(inputs: &Inputs) -> Option<String> {
    let (Stored::Latch(latch), Reading::Known(spec)) = (&inputs.latch, &inputs.spec) else {
        return None;
    };
    (spec.uid == latch.uid && !is_current(inputs, spec, latch)).then(|| {
        format!(
            "the evidence was recorded for generation {} of the spec, and the spec is at {}: no manager observed the changes between them, and the command lines cannot be read; if every kube-controller-manager has the flags of phase {2}, set spec.attestedPhase: {2}",
            latch.generation, spec.generation, spec.phase
        )
    })
}

/// The effective phase: that of the object, unless it cannot be read or skips a phase.
///
/// Skipping a phase forward is ignored, unless every old manager is external already. Skipping one backward is followed:
/// a manager that was down while the operator went back step by step sees it that way. If it stayed in Migrate, it would
/// own controllers beside an old manager that has its original flags again.
pub(super) fn followed(inputs: &Inputs, bound: Option<&Latch>) -> (Option<Phase>, Vec<String>) {
    let spec = match &inputs.spec {
        Reading::Known(spec) => spec,
        Reading::Pending => return (bound.map(|latch| latch.phase), Vec::new()),
        Reading::Unreadable(why) => {
            let warning = format!(
                "the CloudProviderMigration cannot be read ({why}): following the phase of the recorded evidence"
            );
            return (bound.map(|latch| latch.phase), vec![warning]);
        }
    };
    let Some(last) = bound.map(|latch| latch.phase) else {
        return (Some(spec.phase), Vec::new());
    };
    let facts = &inputs.facts;
    let is_safe = facts.controller_managers.are_all_external() && evidence::unlisted_leader(facts).is_none();
    if spec.phase > last && !last.may_become(spec.phase) && !is_safe {
        let warning = format!(
            "phase {last} to {} is more than one step: staying in {last}; set spec.phase back, then go step by step",
            spec.phase
        );
        return (Some(last), vec![warning]);
    }
    if spec.phase == Phase::InTree && !is_in_tree_confirmed(inputs, bound) {
        let warning = "phase InTree is not followed, because this manager owns the controllers and every kube-controller-manager is external; following Prepare instead: set spec.phase to Prepare, roll the kube-controller-managers, and set InTree when one of them holds the migration lease";
        return (Some(Phase::Prepare), vec![warning.to_owned()]);
    }

    (Some(spec.phase), Vec::new())
}

/// In InTree no manager of Outrigger owns a controller. That is refused only if the command lines show that no other
/// process would own them.
fn is_in_tree_confirmed(inputs: &Inputs, bound: Option<&Latch>) -> bool {
    let we_held_it = inputs.holding || bound.is_some_and(|latch| latch.held_by.is_some());
    !we_held_it || held_by_other(inputs, bound) || !inputs.facts.controller_managers.are_all_external()
}
