//! The rules while the `CloudProviderMigration` cannot be read.

use outrigger_shared::migration::Phase;

use super::{Inputs, LatchChange, LeaseAction, Why, after_yield, changed, old_manager_owns, reason};
use crate::evidence::ControllerManager;
use crate::latch::Latch;

/// The object cannot be read: the holder keeps what it holds, and a restarted manager follows the latch. The operator
/// may meanwhile have gone back, which a new holder of K shows: M is offered to it.
pub(super) fn without_object(inputs: &Inputs, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    if inputs.holding {
        let action = match inputs.main_holder_changed {
            true => LeaseAction::Release(Why::new(
                reason::STEPPING_BACK,
                "the CloudProviderMigration cannot be read and the main lease has a new holder: offering the migration lease to it",
            )),
            false => LeaseAction::Compete,
        };
        return (LatchChange::Keep, action);
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
        return (LatchChange::Keep, LeaseAction::Compete);
    }
    let offered = Latch {
        main_holder: passive_main_holder(inputs, latch, inputs.yielded),
        ..latch.clone()
    };
    (changed(inputs, offered), after_yield(inputs))
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
