//! Each rule of the gate, red when it is taken out.

use super::*;
use crate::evidence::tests::{complete, kcm};

fn spec(phase: Phase) -> MigrationSpec {
    MigrationSpec {
        uid: "u".into(),
        phase,
        downtime: false,
    }
}

fn latch(phase: Phase, held: bool) -> Latch {
    Latch {
        uid: "u".into(),
        phase,
        held_migration_lease: held,
    }
}

fn inputs(phase: Phase, latch: Option<Latch>) -> Inputs {
    Inputs {
        spec: Reading::Known(spec(phase)),
        latch,
        facts: complete(),
        migration_lease_idle: false,
        holding: false,
        held_by_other: true,
        main_holder_changed: false,
    }
}

fn unguarded() -> Reading<Vec<evidence::ControllerManager>> {
    Reading::Known(vec![
        kcm(Form::InTree { leader_migration: true }),
        kcm(Form::InTree {
            leader_migration: false,
        }),
    ])
}

fn external() -> Reading<Vec<evidence::ControllerManager>> {
    Reading::Known(vec![kcm(Form::External {
        leader_migration: false,
    })])
}

fn leaves(decision: &Decision) -> bool {
    matches!(decision.action, LeaseAction::StandBy(_))
}

#[test]
fn in_tree_and_prepare_leave_the_migration_lease_alone_even_when_it_is_free() {
    for phase in [Phase::InTree, Phase::Prepare] {
        let mut inputs = inputs(phase, None);
        inputs.held_by_other = false;
        inputs.migration_lease_idle = true;
        assert!(leaves(&decide(&inputs)), "{phase:?}");
        inputs.latch = Some(latch(Phase::Prepare, false));
        assert!(leaves(&decide(&inputs)), "{phase:?}, latched");
    }
}

#[test]
fn complete_evidence_is_latched_in_prepare_and_in_migrate_before_anything_is_taken() {
    for phase in [Phase::Prepare, Phase::Migrate] {
        let decision = decide(&inputs(phase, None));
        assert_eq!(decision.latch, Some(latch(phase, false)));
        assert!(leaves(&decision), "the latch is stored first");
    }
}

#[test]
fn migrate_without_evidence_and_without_a_latch_waits() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.migration_holder = None;
    inputs.held_by_other = false;
    inputs.migration_lease_idle = true;
    let decision = decide(&inputs);
    assert_eq!(decision.latch, None);
    assert!(leaves(&decision));
}

#[test]
fn migrate_with_a_latch_competes_whatever_the_leases_say_now() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Prepare, false)));
    inputs.facts.main_holder = None;
    inputs.facts.migration_holder = None;
    inputs.facts.controller_managers = external();
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(decision.latch, Some(latch(Phase::Migrate, false)));
    inputs.holding = true;
    assert_eq!(
        decide(&inputs).latch,
        Some(latch(Phase::Migrate, true)),
        "having held it is written down"
    );
}

#[test]
fn a_latch_of_another_object_counts_as_none() {
    let mut inputs = inputs(
        Phase::Migrate,
        Some(Latch {
            uid: "old".into(),
            ..latch(Phase::Migrate, true)
        }),
    );
    inputs.facts.migration_holder = None;
    assert!(leaves(&decide(&inputs)));
    assert_eq!(decide(&inputs).latch, None);
}

#[test]
fn an_unguarded_old_manager_voids_the_latch_and_keeps_us_away() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.facts.controller_managers = unguarded();
    let decision = decide(&inputs);
    assert_eq!(decision.latch, None);
    assert!(leaves(&decision));
}

#[test]
fn an_unguarded_old_manager_beside_our_hold_is_an_alarm_in_every_phase() {
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(phase, Some(latch(phase, true)));
        inputs.facts.controller_managers = unguarded();
        inputs.holding = true;
        let decision = decide(&inputs);
        assert!(
            matches!(decision.action, LeaseAction::Alarm(_)),
            "{phase:?}: {:?}",
            decision.action
        );
        assert_eq!(decision.latch, None);
    }
}

#[test]
fn an_unguarded_template_that_runs_nowhere_is_no_alarm() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    let mut stopped = kcm(Form::InTree {
        leader_migration: false,
    });
    stopped.running = false;
    inputs.facts.controller_managers = Reading::Known(vec![stopped]);
    inputs.holding = true;
    assert_eq!(decide(&inputs).action, LeaseAction::Compete);
}

#[test]
fn without_the_object_the_holder_keeps_the_latch_decides_and_none_means_wait() {
    let blind = || Reading::Unreadable("deleted".to_owned());
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.spec = blind();
    assert!(leaves(&decide(&inputs)), "no latch");
    inputs.holding = true;
    assert_eq!(decide(&inputs).action, LeaseAction::Compete, "holding");
    inputs.holding = false;
    inputs.latch = Some(latch(Phase::Migrate, true));
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "latched in Migrate");
    assert_eq!(decision.latch, inputs.latch, "what is latched stays");
    inputs.latch = Some(latch(Phase::Prepare, false));
    assert!(leaves(&decide(&inputs)), "latched in Prepare");
}

#[test]
fn a_jump_of_two_phases_is_ignored() {
    let inputs = inputs(Phase::Complete, Some(latch(Phase::Prepare, false)));
    let decision = decide(&inputs);
    assert_eq!(decision.phase, Some(Phase::Prepare));
    assert!(leaves(&decision));
    assert!(decision.warnings[0].contains("more than one step"));
}

#[test]
fn with_downtime_every_old_manager_must_be_external_and_the_lease_idle() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.spec = Reading::Known(MigrationSpec {
        downtime: true,
        ..spec(Phase::Migrate)
    });
    inputs.held_by_other = false;
    assert!(leaves(&decide(&inputs)), "an in-tree one is left");
    inputs.facts.controller_managers = external();
    assert!(leaves(&decide(&inputs)), "the lease is not idle");
    inputs.migration_lease_idle = true;
    assert_eq!(decide(&inputs).action, LeaseAction::Compete);
    inputs.facts.controller_managers = Reading::Known(vec![]);
    assert!(leaves(&decide(&inputs)), "none can be read");
    inputs.facts.attested_phase = Some(Phase::Prepare);
    assert!(leaves(&decide(&inputs)), "the word is for another phase");
    inputs.facts.attested_phase = Some(Phase::Migrate);
    assert_eq!(decide(&inputs).action, LeaseAction::Compete);
}

#[test]
fn a_step_back_gives_the_lease_up_at_the_phase_change_and_at_each_change_of_the_main_holder() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Migrate, true)));
    inputs.holding = true;
    inputs.held_by_other = false;
    let decision = decide(&inputs);
    assert!(
        matches!(decision.action, LeaseAction::Release(_)),
        "{:?}",
        decision.action
    );
    assert_eq!(decision.latch, Some(latch(Phase::Prepare, true)));

    inputs.latch = decision.latch;
    assert_eq!(
        decide(&inputs).action,
        LeaseAction::CompeteAfterYield,
        "nobody took it, so it was taken back"
    );
    inputs.main_holder_changed = true;
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
}

#[test]
fn a_step_back_takes_the_lease_back_after_yielding_and_ends_when_another_holds_it() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Prepare, true)));
    inputs.held_by_other = false;
    assert_eq!(decide(&inputs).action, LeaseAction::CompeteAfterYield, "at start, too");
    inputs.held_by_other = true;
    let decision = decide(&inputs);
    assert!(leaves(&decision));
    assert_eq!(decision.latch, Some(latch(Phase::Prepare, false)));
}

#[test]
fn in_tree_is_not_accepted_while_we_hold_the_lease() {
    let mut inputs = inputs(Phase::InTree, Some(latch(Phase::Prepare, true)));
    inputs.holding = true;
    inputs.held_by_other = false;
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::CompeteAfterYield);
    assert_eq!(decision.phase, Some(Phase::Prepare));
    inputs.holding = false;
    inputs.held_by_other = true;
    assert_eq!(decide(&inputs).latch, None, "then InTree voids the latch");
}

#[test]
fn a_manager_that_missed_the_steps_back_to_in_tree_does_not_own() {
    for last in [Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(Phase::InTree, Some(latch(last, true)));
        // The old managers cannot be read, and the migration lease is free: nothing else would keep us away.
        inputs.facts.controller_managers = Reading::Known(vec![]);
        inputs.facts.migration_holder = None;
        inputs.held_by_other = false;
        inputs.migration_lease_idle = true;
        let decision = decide(&inputs);
        assert!(leaves(&decision), "{last:?}: {:?}", decision.action);
        assert_eq!(decision.latch, None, "{last:?}");
    }
}

#[test]
fn a_jump_back_is_a_step_back() {
    for to in [Phase::Prepare, Phase::InTree] {
        let mut inputs = inputs(to, Some(latch(Phase::Complete, true)));
        inputs.holding = true;
        inputs.held_by_other = false;
        let decision = decide(&inputs);
        assert!(
            matches!(decision.action, LeaseAction::Release(_)),
            "{to:?}: {:?}",
            decision.action
        );
        assert_eq!(decision.latch, Some(latch(Phase::Prepare, true)));
    }
}

#[test]
fn the_holder_keeps_the_lease_and_the_latch_when_the_object_is_made_again() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.spec = Reading::Known(MigrationSpec {
        uid: "new".into(),
        ..spec(Phase::Migrate)
    });
    inputs.holding = true;
    inputs.held_by_other = false;
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(decision.latch.unwrap().uid, "new");
}

#[test]
fn an_unguarded_template_keeps_a_manager_away_that_does_not_hold_the_lease() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    let mut template = kcm(Form::InTree {
        leader_migration: false,
    });
    template.running = false;
    inputs.facts.controller_managers = Reading::Known(vec![template]);
    assert!(leaves(&decide(&inputs)));
    assert_eq!(decide(&inputs).latch, None);
}
