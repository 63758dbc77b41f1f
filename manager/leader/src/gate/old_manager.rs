//! The reasons while M belongs to the old manager.

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, Why, reason};
use super::first_latch::held_for_nothing;
use crate::evidence::{self, ControllerManager, Facts, LeaseFacts};

pub(super) fn old_manager_owns(inputs: &Inputs, phase: Phase) -> Why {
    if inputs.facts.controller_managers.are_all_external() {
        return Why::new(
            reason::NO_OWNER,
            format!(
                "phase {phase}: a kube-controller-manager has to own the controllers, but every one is external, so no process owns them: roll the kube-controller-managers, so that they become in-tree again, or set spec.phase forward to Migrate, one step at a time"
            ),
        );
    }
    if let Some(problem) = not_owned(&inputs.facts, phase) {
        let text = format!("phase {phase}: no kube-controller-manager is known to own the controllers: {problem}");
        return Why::new(reason::EVIDENCE_MISSING, text);
    }

    let next = match phase {
        Phase::InTree => "set spec.phase to Prepare to begin the migration",
        _ => "set spec.phase to Migrate when the condition Prepared is True",
    };
    Why::new(
        reason::OLD_MANAGER_OWNS,
        format!("phase {phase}: the kube-controller-manager owns the controllers; {next}"),
    )
}

/// Why it is not known that an old manager owns the controllers: one with leader migration needs both leases.
fn not_owned(facts: &Facts, phase: Phase) -> Option<String> {
    let facts = Facts {
        main: perhaps_alive(&facts.main),
        migration: perhaps_alive(&facts.migration),
        ..facts.clone()
    };
    let Some(problem) = evidence::leases(&facts) else {
        return held_for_nothing(&facts).map(|seen| {
            format!(
                "{} holds the migration lease and runs no cloud controller: remove its --enable-leader-migration",
                seen.object
            )
        });
    };
    if phase != Phase::InTree {
        let missing = evidence::missing(&facts);
        return Some(missing.join("; "));
    }

    // In its original form the main lease is enough. Where it cannot be read, the phase says that it has this form.
    let leader = facts.main.live_holder.as_ref();
    let all = facts.controller_managers.seen.iter();
    let needs_more = |seen: &ControllerManager| seen.is_guarded_and_running() || seen.is_external();
    let owns = leader.is_some_and(|leader| !all.filter(|seen| seen.is_holder(leader)).any(needs_more));
    (!owns).then_some(problem)
}

/// A record that was found at the start may be of a living process until it was unchanged for a full lease duration.
fn perhaps_alive(lease: &LeaseFacts) -> LeaseFacts {
    let named = lease.named_holder.clone().filter(|_| !lease.idle);
    LeaseFacts {
        live_holder: lease.live_holder.clone().or(named),
        ..lease.clone()
    }
}
