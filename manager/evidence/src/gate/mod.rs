//! Decides whether this manager may compete for the migration lease, may keep it, or must release it. Pure.
//!
//! There are three leases: **K**, the main lease of the old kube-controller-manager; **C**, the main lease of this
//! manager; **M**, the migration lease. An old manager acts only while it holds K, and with leader migration it needs M,
//! too. This manager acts only while it holds M and the holder of K is proven to need M
//! ([ADR 1](../../../../docs/adr/0001-one-owner.md)).

mod decision;

use std::collections::BTreeMap;

use outrigger_shared::migration::Phase;

use crate::facts::{self, ControllerManager, Facts, LeaseFacts, MainHolder, Proven, Reading};
use crate::latch::{self, Latch, Stored};
use crate::why::{Missing, Source, Warning, Why};

pub use decision::{Decision, Inputs, LatchChange, LeaseAction, MigrationSpec, YIELD};

/// Decides from the current inputs.
#[must_use]
pub fn decide(inputs: &Inputs) -> Decision {
    let bound = binding_latch(inputs);
    let (phase, mut warnings) = followed(inputs, bound.as_ref());
    warnings.extend(others(inputs, phase));

    let action = action(inputs, phase, bound.as_ref());
    let latch = latch_after(inputs, phase, bound.as_ref());

    Decision {
        latch,
        action,
        phase,
        bound,
        warnings,
    }
}

/// The latch, if it belongs to the current object. An object that was deleted and created again starts without a latch,
/// unless this process holds M: then the latch stays valid and gets the new UID.
fn binding_latch(inputs: &Inputs) -> Option<Latch> {
    let Stored::Latch(latch) = &inputs.latch else {
        return None;
    };
    match &inputs.spec {
        Reading::Known(spec) if spec.uid == latch.uid => Some(latch.clone()),
        Reading::Known(spec) => inputs.holding.then(|| Latch {
            uid: spec.uid.clone(),
            ..latch.clone()
        }),
        Reading::Pending | Reading::Unreadable(_) => (!latch.superseded).then(|| latch.clone()),
    }
}

/// The effective phase: that of the object, or of the latch where the object cannot be read. InTree is not followed where
/// no process would own the controllers.
fn followed(inputs: &Inputs, bound: Option<&Latch>) -> (Option<Phase>, Vec<Warning>) {
    let spec = match &inputs.spec {
        Reading::Known(spec) => spec,
        Reading::Pending => return (bound.map(|latch| latch.phase), Vec::new()),
        Reading::Unreadable(why) => {
            let warning = Warning::MigrationUnreadable(why.clone());
            return (bound.map(|latch| latch.phase), vec![warning]);
        }
    };

    let facts = &inputs.facts;
    let is_ours = inputs.holding || bound.is_some_and(|latch| latch.held_by.is_some());
    let all_external = facts.controller_managers.are_all_external();
    let nobody_else = (all_external || facts.is_led_by_external()) && !held_by_other(inputs, bound);
    if spec.phase == Phase::InTree && is_ours && nobody_else {
        return (Some(Phase::Prepare), vec![Warning::InTreeNotFollowed]);
    }

    (Some(spec.phase), Vec::new())
}

/// The warnings that do not depend on the phase that is followed.
fn others(inputs: &Inputs, phase: Option<Phase>) -> Vec<Warning> {
    if phase <= Some(Phase::InTree) {
        return Vec::new();
    }

    let all = &inputs.facts.controller_managers;
    let leads = |seen: &ControllerManager| {
        inputs
            .facts
            .main
            .holder
            .as_ref()
            .is_some_and(|holder| seen.is_holder(holder))
    };
    let standbys = all
        .seen
        .iter()
        .filter(|seen| seen.running && seen.is_unguarded() && !leads(seen));
    let standbys = standbys.map(|seen| Warning::UnguardedStandby(seen.object.clone()));
    let ignored = all.ignored.iter().cloned().map(Warning::Ignored);
    let is_made = |spec: &&MigrationSpec| spec.attestation().is_some() && inputs.facts.attestation.is_none();
    let left_over = inputs
        .spec
        .known()
        .filter(is_made)
        .map(|_| Warning::AttestationLeftOver);

    standbys.chain(ignored).chain(left_over).collect()
}

fn action(inputs: &Inputs, phase: Option<Phase>, bound: Option<&Latch>) -> LeaseAction {
    if let Some((seen, flag)) = inputs.facts.unlocked()
        && (inputs.holding || phase > Some(Phase::InTree))
    {
        let why = Why::Unlocked(seen.object.clone(), flag.to_owned());
        return match inputs.holding {
            true => LeaseAction::Alarm(why),
            false => LeaseAction::StandBy(why),
        };
    }
    if let Some(source) = not_read(inputs) {
        return wait(inputs, Why::NotReadYet(source));
    }

    match phase {
        Some(phase @ Phase::InTree) => release_or_stand_by(inputs, old_manager_owns(&inputs.facts, phase)),
        Some(Phase::Prepare) => prepare(inputs, bound),
        Some(phase @ (Phase::Migrate | Phase::Complete)) => migrate(inputs, phase, bound),
        None if inputs.holding => by_main_holder(inputs, None),
        None => LeaseAction::StandBy(Why::MigrationUnreadable),
    }
}

/// The source that was never read. Nothing is started on missing knowledge.
fn not_read(inputs: &Inputs) -> Option<Source> {
    let facts = &inputs.facts;
    match () {
        () if inputs.spec == Reading::Pending => Some(Source::Migration),
        () if !facts.controller_managers.read => Some(Source::ControllerManagers),
        () if !facts.main.read => Some(Source::MainLease),
        () if !facts.migration.read => Some(Source::MigrationLease),
        () => None,
    }
}

/// Nothing is released for what is not known yet, and nothing is written.
fn wait(inputs: &Inputs, why: Why) -> LeaseAction {
    match inputs.holding {
        true => LeaseAction::Pause(why),
        false => LeaseAction::StandBy(why),
    }
}

fn release_or_stand_by(inputs: &Inputs, why: Why) -> LeaseAction {
    match inputs.holding {
        true => LeaseAction::Release(why),
        false => LeaseAction::StandBy(why),
    }
}

/// Competes for M, or keeps it, while the holder of K acts only while it holds M, or nobody holds K and no process that may
/// acquire it acts without M.
fn by_main_holder(inputs: &Inputs, phase: Option<Phase>) -> LeaseAction {
    match inputs.facts.main_holder() {
        MainHolder::Proven(_) => LeaseAction::Compete,
        MainHolder::None => match inputs.facts.possible_taker() {
            None => LeaseAction::Compete,
            Some(taker) => wait(inputs, Why::MainLeaseNotHeld(phase, taker)),
        },
        MainHolder::NotRead => wait(inputs, Why::NotReadYet(Source::MainLease)),
        MainHolder::Listing(identity) => wait(inputs, Why::Listing(identity)),
        MainHolder::New(identity) => wait(inputs, Why::NewLeader(identity)),
        MainHolder::Unproven(unproven) => {
            // A step back rolls kube-controller-managers that nobody can read: M is left to them.
            let is_alarm = phase != Some(Phase::Prepare) || unproven.is_known_to_be_wrong();
            let why = Why::Leader(phase, unproven);
            match is_alarm && inputs.holding {
                true => LeaseAction::Alarm(why),
                false => release_or_stand_by(inputs, why),
            }
        }
    }
}

/// The reason while M belongs to the old manager.
fn old_manager_owns(facts: &Facts, phase: Phase) -> Why {
    if facts.controller_managers.are_all_external() {
        return Why::NoOwner(phase);
    }
    match not_owned(facts, phase) {
        missing if missing.is_empty() => Why::OldManagerOwns(phase),
        missing => Why::NotOwned(phase, missing),
    }
}

/// Why it is not known that an old manager owns the controllers: one with leader migration needs both leases.
fn not_owned(facts: &Facts, phase: Phase) -> Vec<Missing> {
    let facts = Facts {
        main: perhaps_alive(&facts.main),
        migration: perhaps_alive(&facts.migration),
        ..facts.clone()
    };
    let Some(missing) = facts::leases(&facts) else {
        let for_nothing = facts.held_for_nothing();
        return for_nothing
            .map(|seen| Missing::LeftOn(seen.object.clone()))
            .into_iter()
            .collect();
    };
    if phase != Phase::InTree {
        return facts::missing(&facts, phase);
    }

    // In its original form the main lease is enough. Where it cannot be read, the phase says that it has this form. A
    // process that is known to be something else does not own the controllers.
    let leads = facts.main.live_holder.is_some();
    match leads && !matches!(facts.main_holder(), MainHolder::Proven(_)) {
        true => Vec::new(),
        false => vec![missing],
    }
}

/// A record that was found at the start may be of a living process until it was unchanged for a full lease duration.
fn perhaps_alive(lease: &LeaseFacts) -> LeaseFacts {
    let named = lease.named_holder.clone().filter(|_| !lease.idle);
    LeaseFacts {
        live_holder: lease.live_holder.clone().or(named),
        ..lease.clone()
    }
}

/// Another process holds M and renews it: neither this one nor its predecessor.
fn held_by_other(inputs: &Inputs, bound: Option<&Latch>) -> bool {
    let predecessor = bound.and_then(|latch| latch.held_by.as_ref());
    let holder = inputs.facts.migration.live_holder.as_ref();
    holder.is_some_and(|holder| *holder != inputs.identity && Some(holder) != predecessor)
}

/// A manager of ours held M, and no other process has held it since.
fn is_step_back(inputs: &Inputs, bound: Option<&Latch>) -> bool {
    inputs.holding || bound.is_some_and(|latch| latch.held_by.is_some()) && !held_by_other(inputs, bound)
}

fn prepare(inputs: &Inputs, bound: Option<&Latch>) -> LeaseAction {
    if !is_step_back(inputs, bound) {
        return LeaseAction::StandBy(old_manager_owns(&inputs.facts, Phase::Prepare));
    }
    if !inputs.holding && !inputs.yielded {
        return LeaseAction::Yield(Why::Offering(YIELD));
    }

    let action = by_main_holder(inputs, Some(Phase::Prepare));
    let is_held = inputs.facts.main.holder.is_some();
    let may_acquire = is_held && !inputs.facts.is_led_by_external();
    match action {
        LeaseAction::Compete if inputs.holding && may_acquire && inputs.offer_due => {
            LeaseAction::Release(Why::Offering(YIELD))
        }
        action => action,
    }
}

fn migrate(inputs: &Inputs, phase: Phase, bound: Option<&Latch>) -> LeaseAction {
    // The watch of M may show the acquisition before the answer to the request, so before this process counts as its holder.
    let is_acquired = inputs.facts.migration.live_holder.as_ref() == Some(&inputs.identity);
    let is_first = !inputs.holding && !is_acquired && bound.is_none_or(|latch| latch.held_by.is_none());
    if !is_first {
        return by_main_holder(inputs, Some(phase));
    }

    let missing = match bound {
        Some(_) => facts::contradictions(&inputs.facts),
        None => facts::missing(&inputs.facts, phase),
    };
    if !missing.is_empty() {
        return LeaseAction::StandBy(Why::EvidenceMissing(phase, missing));
    }

    match by_main_holder(inputs, Some(phase)) {
        LeaseAction::Compete if bound.is_none() => LeaseAction::StandBy(match is_m_left(inputs) {
            true => Why::StoringEvidence,
            false => lease_in_use(&inputs.facts),
        }),
        action => action,
    }
}

/// M is idle, or its holder is the holder of K, which is proven: it acts only while it holds M.
fn is_m_left(inputs: &Inputs) -> bool {
    let facts = &inputs.facts;
    let leads = facts.main.live_holder.is_some() && facts.main.live_holder == facts.migration.live_holder;
    facts.migration.idle || leads && facts.held_for_nothing().is_none()
}

fn lease_in_use(facts: &Facts) -> Why {
    Why::LeaseInUse {
        holder: facts
            .migration
            .live_holder
            .clone()
            .or_else(|| facts.migration.holder.clone()),
        for_nothing: facts.held_for_nothing().map(|seen| seen.object.clone()),
        failure: facts.migration.unwatched().cloned(),
    }
}

/// The latch that lease C is to have.
fn latch_after(inputs: &Inputs, phase: Option<Phase>, bound: Option<&Latch>) -> LatchChange {
    if not_read(inputs).is_some() {
        return LatchChange::Keep;
    }
    if phase == Some(Phase::InTree) {
        return match bound {
            Some(_) => LatchChange::Remove,
            None => supersede(inputs),
        };
    }

    let own = |phase| match &inputs.spec {
        // Another process removed it while this one holds M, or the evidence is complete now.
        Reading::Known(spec) if inputs.holding || is_complete(inputs, phase) => Some(new_latch(spec, phase)),
        _ => None,
    };
    let base = bound.cloned().or_else(|| own(phase?));
    match base {
        Some(latch) => changed(inputs, observed(inputs, phase, bound, latch)),
        None => supersede(inputs),
    }
}

/// Whether the evidence is complete for a first latch.
fn is_complete(inputs: &Inputs, phase: Phase) -> bool {
    let is_missing = || !facts::missing(&inputs.facts, phase).is_empty();
    inputs.facts.unlocked().is_none()
        && !is_missing()
        && (phase == Phase::Prepare || is_m_left(inputs) && by_main_holder(inputs, Some(phase)) == LeaseAction::Compete)
}

pub(crate) fn new_latch(spec: &MigrationSpec, phase: Phase) -> Latch {
    Latch {
        version: latch::VERSION,
        uid: spec.uid.clone(),
        phase,
        held_by: None,
        proven: Vec::new(),
        led_before: None,
        seen_unattested: false,
        superseded: false,
        other: BTreeMap::new(),
    }
}

/// The latch with what is known now. While the object cannot be read, its phase stays.
fn observed(inputs: &Inputs, phase: Option<Phase>, bound: Option<&Latch>, latch: Latch) -> Latch {
    let mut next = latch.clone();
    if let (Reading::Known(spec), Some(phase)) = (&inputs.spec, phase) {
        let is_same_run = (latch.phase >= Phase::Migrate) == (phase >= Phase::Migrate);
        next.phase = phase;
        next.led_before.clone_from(&inputs.facts.led_before);
        next.seen_unattested = spec.seen_unattested || is_same_run && latch.seen_unattested;
        next.superseded = false;
    }

    let is_ended = phase == Some(Phase::Prepare) && held_by_other(inputs, bound);
    next.held_by = match inputs.holding {
        true => Some(inputs.identity.clone()),
        false => latch.held_by.filter(|_| !is_ended),
    };
    next.proven.clone_from(&inputs.facts.proven);
    if let MainHolder::Proven(proven) = inputs.facts.main_holder() {
        Proven::remember(&mut next.proven, &proven);
    }

    next
}

/// Marks the latch of an object that was created again, so that nobody follows it when the new object cannot be read. It
/// is not removed: it may belong to another object, and this manager's `--migration` may be the wrong one.
fn supersede(inputs: &Inputs) -> LatchChange {
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

fn changed(inputs: &Inputs, new: Latch) -> LatchChange {
    match &inputs.latch {
        Stored::Latch(old) if *old == new => LatchChange::Keep,
        _ => LatchChange::Store(new),
    }
}

#[cfg(test)]
mod tests;
