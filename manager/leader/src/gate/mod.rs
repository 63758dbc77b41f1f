//! Decides whether this manager may compete for the migration lease, may keep it, or must release it. Pure.
//!
//! There are three leases: **K**, the main lease of the old kube-controller-manager; **C**, the main lease of this
//! manager; **M**, the migration lease. Two managers own the same controllers only if this process holds M while an
//! in-tree kube-controller-manager without leader migration runs under K. Every rule here prevents that, or ends it at
//! once. Nobody owns them if M is free and every kube-controller-manager is external, so each rule that keeps M free
//! names what ends it.

mod decision;
mod first_acquisition;
mod first_latch;
mod followed;
mod old_manager;
mod second_owner;
mod without_object;

use outrigger_shared::migration::Phase;

use crate::evidence::{ControllerManager, Reading};
use crate::latch::{Basis, Latch, Stored};

pub use decision::{Decision, Inputs, LatchChange, LeaseAction, MigrationSpec, UNREADABLE, Why, YIELD, reason};
use decision::{after_yield, changed, held_by_other};
pub use first_latch::held_for_nothing;
use first_latch::{gathered, new_latch, without_old_manager};
use followed::{binding_latch, followed, outdated, supersede};
use old_manager::old_manager_owns;
pub use second_owner::QUIET;
pub use without_object::external_leader;
use without_object::{is_passive, passive_main_holder, without_object};

/// Decides from the current inputs.
#[must_use]
pub fn decide(inputs: &Inputs) -> Decision {
    let bound = binding_latch(inputs);
    let (phase, mut warnings) = followed(inputs, bound.as_ref());
    warnings.extend(outdated(inputs));

    let (latch, action) = rule(inputs, phase, bound.as_ref());
    let latch = match latch {
        LatchChange::Keep => supersede(inputs),
        latch => latch,
    };

    Decision {
        latch,
        action,
        phase,
        bound,
        warnings,
    }
}

fn rule(inputs: &Inputs, phase: Option<Phase>, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    if let Some(unguarded) = running_unguarded(inputs) {
        return unguarded_runs(inputs, unguarded, phase, bound);
    }
    if let Some(write) = second_owner::write(inputs, bound) {
        return second_owner::rule(inputs, write, bound);
    }
    if let Some(source) = not_read(inputs) {
        let waiting = Why::new(
            reason::NOT_READ_YET,
            format!("{source} has not been read yet; if this lasts, the manager's log names the failed request"),
        );
        return (LatchChange::Keep, keep_or_stand_by(inputs, waiting));
    }
    if let Stored::Unreadable(why) = &inputs.latch {
        let why =
            format!("{why}: run the newer manager, or remove the annotation so that the evidence is gathered again");
        return (
            LatchChange::Keep,
            keep_or_stand_by(inputs, Why::new(reason::LATCH_UNREADABLE, why)),
        );
    }
    let Reading::Known(spec) = &inputs.spec else {
        return without_object(inputs, bound);
    };

    match phase.unwrap_or(spec.phase) {
        Phase::InTree => in_tree(inputs, bound),
        Phase::Prepare => prepare(inputs, spec, bound),
        phase @ (Phase::Migrate | Phase::Complete) => migrate(inputs, spec, phase, bound),
    }
}

/// The source that was never read. Nothing is started on missing knowledge.
fn not_read(inputs: &Inputs) -> Option<&'static str> {
    let facts = &inputs.facts;
    match () {
        () if inputs.spec == Reading::Pending => Some("the CloudProviderMigration"),
        () if !facts.controller_managers.read => Some("the list of kube-controller-managers"),
        () if !facts.main.read => Some("the kube-controller-manager's main lease"),
        () if !facts.migration.read => Some("the migration lease"),
        // Its predecessor may have released the lease because of a write to a Service.
        () if !inputs.services_read && !inputs.holding => Some("the list of Services"),
        () => None,
    }
}

fn keep_or_stand_by(inputs: &Inputs, why: Why) -> LeaseAction {
    match inputs.holding {
        true => LeaseAction::Compete,
        false => LeaseAction::StandBy(why),
    }
}

fn running_unguarded(inputs: &Inputs) -> Option<&ControllerManager> {
    let mut all = inputs.facts.controller_managers.seen.iter();
    all.find(|seen| seen.is_unguarded() && seen.running)
}

fn unguarded_runs(
    inputs: &Inputs,
    unguarded: &ControllerManager,
    phase: Option<Phase>,
    bound: Option<&Latch>,
) -> (LatchChange, LeaseAction) {
    if phase == Some(Phase::InTree) && !inputs.holding {
        return in_tree(inputs, bound);
    }

    let latch = if bound.is_some() {
        LatchChange::Remove
    } else {
        LatchChange::Keep
    };
    let remedy = match phase {
        Some(Phase::Migrate | Phase::Complete) => {
            "roll its workload in phase Migrate, so that the webhook sets --cloud-provider=external, or write that flag into the file of the static Pod"
        }
        _ => {
            "roll its workload in phase Prepare, so that the webhook adds --enable-leader-migration, or add the flag to the file of the static Pod"
        }
    };
    let text = format!(
        "{} runs in-tree without leader migration: {remedy}; if it must not run, stop or delete it",
        unguarded.object
    );
    let why = Why::new(reason::UNGUARDED, text);
    let action = match inputs.holding {
        true => LeaseAction::Alarm(why),
        false => LeaseAction::StandBy(why),
    };

    (latch, action)
}

/// Whether an offer of M can have an effect: an old manager acquires it only while it holds K. A static Pod that was rolled
/// has the host name of the former one, and may be listed later than its acquisition of K: then the offer waits for the
/// list.
fn may_be_acquired(inputs: &Inputs, latch: &Latch) -> bool {
    match inputs.facts.main.named_holder {
        Some(_) => !is_passive(inputs, Some(latch)),
        None => !inputs.facts.controller_managers.are_all_external(),
    }
}

fn in_tree(inputs: &Inputs, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let latch = match bound {
        Some(_) => LatchChange::Remove,
        None => LatchChange::Keep,
    };
    (
        latch,
        release_or_stand_by(inputs, old_manager_owns(inputs, Phase::InTree)),
    )
}

fn release_or_stand_by(inputs: &Inputs, why: Why) -> LeaseAction {
    match inputs.holding {
        true => LeaseAction::Release(why),
        false => LeaseAction::StandBy(why),
    }
}

fn prepare(inputs: &Inputs, spec: &MigrationSpec, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let idle = release_or_stand_by(inputs, old_manager_owns(inputs, Phase::Prepare));
    let own = inputs.holding.then(|| holders_latch(inputs, spec, Phase::Prepare));
    let Some(latch) = bound.or(own.as_ref()) else {
        return match gathered(inputs, spec, Phase::Prepare) {
            Ok(latch) => (LatchChange::Store(latch), idle),
            Err(_) => (LatchChange::Keep, idle),
        };
    };

    let ended = held_by_other(inputs, Some(latch));
    let ours = inputs.holding.then(|| inputs.identity.clone());
    let held_by = ours.or_else(|| latch.held_by.clone()).filter(|_| !ended);
    let next = observed(inputs, latch, (spec, Phase::Prepare), held_by);
    if next.held_by.is_none() {
        return (changed(inputs, next), idle);
    }

    let stepped_back = latch.phase != Phase::Prepare;
    let offer_again = inputs.offer_again && inputs.facts.main.live_holder.is_some();
    let action = if !inputs.holding {
        after_yield(inputs)
    } else if may_be_acquired(inputs, &next) && (stepped_back || inputs.main_holder_changed || offer_again) {
        LeaseAction::Release(Why::new(
            reason::STEPPING_BACK,
            "phase Prepare: offering the migration lease to the old manager",
        ))
    } else {
        LeaseAction::Compete
    };

    (changed(inputs, next), action)
}

fn migrate(inputs: &Inputs, spec: &MigrationSpec, phase: Phase, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let ours = || inputs.holding.then(|| inputs.identity.clone());
    if let Some(latch) = bound {
        let held_by = ours().or_else(|| latch.held_by.clone());
        let next = observed(inputs, latch, (spec, phase), held_by);
        return (changed(inputs, next), first_acquisition::compete(inputs, latch));
    }
    if inputs.holding {
        let latch = holders_latch(inputs, spec, phase);
        return (LatchChange::Store(latch), LeaseAction::Compete);
    }

    match gathered(inputs, spec, phase).or_else(|missing| without_old_manager(inputs, spec, phase, missing)) {
        Ok(latch) => {
            let why = "the evidence is complete: storing it on the main lease first";
            (
                LatchChange::Store(latch),
                LeaseAction::StandBy(Why::new(reason::STORING_EVIDENCE, why)),
            )
        }
        Err(why) => (LatchChange::Keep, LeaseAction::StandBy(why)),
    }
}

/// The latch of a process that acquired M by a latch that is gone, for example with the annotation.
fn holders_latch(inputs: &Inputs, spec: &MigrationSpec, phase: Phase) -> Latch {
    Latch {
        held_since: inputs.acquired,
        ..new_latch(spec, phase, Basis::External, Some(inputs.identity.clone()))
    }
}

fn observed(inputs: &Inputs, latch: &Latch, (spec, phase): (&MigrationSpec, Phase), held_by: Option<String>) -> Latch {
    Latch {
        generation: spec.generation,
        phase,
        held_by,
        held_since: second_owner::held_since(inputs, Some(latch)),
        main_holder: match inputs.holding {
            true => passive_main_holder(inputs, latch, false),
            false => latch.main_holder.clone(),
        },
        superseded: false,
        ..latch.clone()
    }
}

#[cfg(test)]
mod tests;
