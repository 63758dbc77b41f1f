//! The rules while the `CloudProviderMigration` cannot be read.

use outrigger_shared::migration::Phase;

use super::decision::{Inputs, LatchChange, LeaseAction, Why, after_yield, changed, reason};
use super::first_acquisition;
use super::old_manager::old_manager_owns;
use crate::evidence::{ControllerManager, Facts};
use crate::latch::Latch;

/// The object cannot be read: the holder keeps what it holds, and a restarted manager follows the latch. The operator
/// may meanwhile have gone back, which a new holder of K shows: M is offered to it, unless it is external.
pub(super) fn without_object(inputs: &Inputs, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    if inputs.holding {
        return keep_or_offer(inputs, bound);
    }

    let Some(latch) = bound else {
        let why = "the CloudProviderMigration cannot be read and no evidence is recorded: make it readable, or correct --migration";
        let action = LeaseAction::StandBy(Why::new(reason::MIGRATION_UNREADABLE, why));
        return (LatchChange::Keep, action);
    };
    if latch.phase <= Phase::Prepare {
        let action = match latch.held_by {
            None => LeaseAction::StandBy(old_manager_owns(inputs, latch.phase)),
            Some(_) => after_yield(inputs),
        };
        return (LatchChange::Keep, action);
    }

    let main = &inputs.facts.main.named_holder;
    if main.is_some() && latch.main_holder == *main {
        return (LatchChange::Keep, first_acquisition::compete(inputs, latch));
    }
    let offered = Latch {
        main_holder: passive_main_holder(inputs, latch, inputs.yielded),
        ..latch.clone()
    };
    let action = match inputs.yielded {
        true => first_acquisition::compete(inputs, latch),
        false => after_yield(inputs),
    };

    (changed(inputs, offered), action)
}

fn keep_or_offer(inputs: &Inputs, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let latch = bound.map(|latch| Latch {
        main_holder: passive_main_holder(inputs, latch, false),
        ..latch.clone()
    });
    let action = match inputs.main_holder_changed && !is_passive(inputs, latch.as_ref()) {
        true => LeaseAction::Release(Why::new(
            reason::STEPPING_BACK,
            "the CloudProviderMigration cannot be read and the main lease has a new holder: offering the migration lease to it",
        )),
        false => LeaseAction::Compete,
    };

    (latch.map_or(LatchChange::Keep, |latch| changed(inputs, latch)), action)
}

/// Whether the holder of K does not acquire M: it is external, or its Pod is gone, and it was external.
pub(super) fn is_passive(inputs: &Inputs, latch: Option<&Latch>) -> bool {
    let holder = &inputs.facts.main.named_holder;
    let is_recorded = latch.is_some_and(|latch| latch.main_holder == *holder);
    external_leader(&inputs.facts).is_some() || holder.is_some() && is_recorded
}

/// The holder of K, if it can be read and is external.
#[must_use]
pub fn external_leader(facts: &Facts) -> Option<&ControllerManager> {
    let holder = facts.main.named_holder.as_ref()?;
    let all = facts.controller_managers.seen.iter();
    let mut named = all.filter(|seen| seen.is_holder(holder)).peekable();

    let first = *named.peek()?;
    named.all(ControllerManager::is_external).then_some(first)
}

/// The holder of K, if it does not acquire M: it is external, or it `was_offered` M. A process that can be read and is
/// in-tree may only be slow. Each process has its own identity, so a rolled one is another holder.
pub(super) fn passive_main_holder(inputs: &Inputs, latch: &Latch, was_offered: bool) -> Option<String> {
    let Some(holder) = &inputs.facts.main.named_holder else {
        return latch.main_holder.clone();
    };
    let all = inputs.facts.controller_managers.seen.iter();
    let mut read = all.filter(|seen| seen.is_holder(holder)).peekable();

    match read.peek() {
        Some(_) => read.all(ControllerManager::is_external).then(|| holder.clone()),
        None if was_offered => Some(holder.clone()),
        None => latch.main_holder.clone(),
    }
}
