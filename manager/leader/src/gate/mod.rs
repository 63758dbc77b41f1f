//! Decides whether this manager may compete for the migration lease, may keep it, or must release it. Pure.
//!
//! There are three leases: **K**, the main lease of the old kube-controller-manager; **C**, the main lease of this
//! manager; **M**, the migration lease. Two managers own the same controllers only if this process holds M while an
//! in-tree kube-controller-manager without leader migration runs under K. Every rule here prevents that, or ends it at
//! once. Nobody owns them if M is free and every kube-controller-manager is external, so each rule that keeps M free
//! names what ends it.

mod decision;
mod first_latch;
mod followed;

use std::time::Duration;

use jiff::Timestamp;
use outrigger_shared::migration::Phase;

use crate::evidence::{self, ControllerManager, Facts, LeaseFacts, Reading};
use crate::latch::{Basis, Latch, Stored};
use crate::service_write::ServiceWrite;

pub use decision::{Decision, Inputs, LatchChange, LeaseAction, MigrationSpec, UNREADABLE, Why, YIELD, reason};
use decision::{after_yield, changed, held_by_other};
pub use first_latch::held_for_nothing;
use first_latch::{compete, gathered, new_latch, without_old_manager};
use followed::{binding_latch, followed, outdated, supersede};

/// A write of a kube-controller-manager this long after our acquisition of M is no sign of a second owner yet: a client-go
/// elector that was stopped and continued writes for up to its renew deadline (10 s), the clocks of two API servers may
/// differ, and the times are whole seconds. An old manager that still runs writes again.
const GRACE: Duration = Duration::from_secs(15);

/// How long M stays free after the last write of a second owner. It writes only when a Service changes, so a shorter time
/// would start both again and again.
pub const QUIET: Duration = Duration::from_secs(300);

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
    if let Some(write) = second_owners_write(inputs, bound) {
        return second_owner(inputs, write, bound);
    }
    if let Some(source) = not_read(inputs) {
        let waiting = Why::new(
            reason::NOT_READ_YET,
            format!("{source} has not been read yet; if this lasts, the manager's log names the failed request"),
        );
        return (LatchChange::Keep, keep_or_stand_by(inputs, waiting));
    }
    if let Stored::Unreadable(why) = &inputs.latch {
        let why = Why::new(
            reason::LATCH_UNREADABLE,
            format!("{why}: run the newer manager, or remove the annotation so that the evidence is gathered again"),
        );
        return (LatchChange::Keep, keep_or_stand_by(inputs, why));
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

    let latch = without_latch(bound);
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

/// The newest write of a kube-controller-manager, if this process or its predecessor owned the controllers then.
fn second_owners_write<'a>(inputs: &'a Inputs, bound: Option<&Latch>) -> Option<&'a ServiceWrite> {
    let acquired = held_since(inputs, bound)?;
    let write = inputs.service_write.as_ref()?;
    (write.time > acquired + GRACE).then_some(write)
}

/// Since when a manager of ours owned the controllers, by the API server's clock. None if another process had M since.
fn held_since(inputs: &Inputs, bound: Option<&Latch>) -> Option<Timestamp> {
    if inputs.holding {
        return inputs.acquired;
    }

    let latch = bound?;
    let last = inputs.facts.migration.named_holder.as_ref();
    let other_had_it = last.is_some_and(|last| *last != inputs.identity && Some(last) != latch.held_by.as_ref());
    latch.held_since.filter(|_| !other_had_it)
}

fn second_owner(inputs: &Inputs, write: &ServiceWrite, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let why = Why::new(
        reason::SECOND_OWNER,
        format!(
            "kube-controller-manager wrote the status of Service {} at {}, while this manager owned the controllers: find the kube-controller-manager that runs in-tree without leader migration, and stop it; the migration lease is acquired again {} minutes after the last such write",
            write.service,
            write.time,
            QUIET.as_secs() / 60
        ),
    );
    if !inputs.holding {
        return (LatchChange::Keep, LeaseAction::StandBy(why));
    }

    // The successor needs the time of the acquisition, or it would follow the latch at once.
    let latch = bound.map(|latch| Latch {
        held_by: Some(inputs.identity.clone()),
        held_since: inputs.acquired,
        ..latch.clone()
    });
    let latch = latch.map_or(LatchChange::Keep, |latch| changed(inputs, latch));

    (latch, LeaseAction::Alarm(why))
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
    let action = release_or_stand_by(inputs, old_manager_owns(inputs, Phase::InTree));
    (without_latch(bound), action)
}

/// The reason while M belongs to the old manager.
fn old_manager_owns(inputs: &Inputs, phase: Phase) -> Why {
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

fn without_latch(bound: Option<&Latch>) -> LatchChange {
    match bound {
        Some(_) => LatchChange::Remove,
        None => LatchChange::Keep,
    }
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
        return (changed(inputs, next), compete(inputs, latch));
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

/// The object cannot be read: the holder keeps what it holds, and a restarted manager follows the latch. The operator
/// may meanwhile have gone back, which a new holder of K shows: M is offered to it, unless it is external.
fn without_object(inputs: &Inputs, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
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
        return (LatchChange::Keep, compete(inputs, latch));
    }
    let offered = Latch {
        main_holder: passive_main_holder(inputs, latch, inputs.yielded),
        ..latch.clone()
    };
    let action = match inputs.yielded {
        true => compete(inputs, latch),
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
fn is_passive(inputs: &Inputs, latch: Option<&Latch>) -> bool {
    let holder = &inputs.facts.main.named_holder;
    let is_recorded = latch.is_some_and(|latch| latch.main_holder == *holder);
    external_leader(&inputs.facts).is_some() || holder.is_some() && is_recorded
}

/// The holder of K, if it can be read and is external.
pub fn external_leader(facts: &Facts) -> Option<&ControllerManager> {
    let holder = facts.main.named_holder.as_ref()?;
    let all = facts.controller_managers.seen.iter();
    let mut named = all.filter(|seen| seen.is_holder(holder)).peekable();

    let first = *named.peek()?;
    named.all(ControllerManager::is_external).then_some(first)
}

/// The holder of K, if it does not acquire M: it is external, or it `was_offered` M. A process that can be read and is
/// in-tree may only be slow. Each process has its own identity, so a rolled one is another holder.
fn passive_main_holder(inputs: &Inputs, latch: &Latch, was_offered: bool) -> Option<String> {
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
        held_since: held_since(inputs, Some(latch)),
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
