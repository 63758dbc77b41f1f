//! Each rule of the gate, red when it is taken out.

use super::*;
use crate::evidence::tests::{complete, kcm};

fn wish(phase: Phase) -> Wish {
    Wish {
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

fn seen(phase: Phase, latch: Option<Latch>) -> Seen {
    Seen {
        wish: Sight::Known(wish(phase)),
        latch,
        facts: complete(),
        migration_lease_idle: false,
        holding: false,
        held_by_other: true,
        main_holder_changed: false,
    }
}

fn unguarded() -> Sight<Vec<evidence::SeenControllerManager>> {
    Sight::Known(vec![
        kcm(Form::InTree { leader_migration: true }),
        kcm(Form::InTree {
            leader_migration: false,
        }),
    ])
}

fn external() -> Sight<Vec<evidence::SeenControllerManager>> {
    Sight::Known(vec![kcm(Form::External {
        leader_migration: false,
    })])
}

fn leaves(ruling: &Ruling) -> bool {
    matches!(ruling.stance, Stance::Leave(_))
}

#[test]
fn in_tree_and_prepare_leave_the_migration_lease_alone_even_when_it_is_free() {
    for phase in [Phase::InTree, Phase::Prepare] {
        let mut seen = seen(phase, None);
        seen.held_by_other = false;
        seen.migration_lease_idle = true;
        assert!(leaves(&rule(&seen)), "{phase:?}");
        seen.latch = Some(latch(Phase::Prepare, false));
        assert!(leaves(&rule(&seen)), "{phase:?}, latched");
    }
}

#[test]
fn complete_evidence_is_latched_in_prepare_and_in_migrate_before_anything_is_taken() {
    for phase in [Phase::Prepare, Phase::Migrate] {
        let ruling = rule(&seen(phase, None));
        assert_eq!(ruling.latch, Some(latch(phase, false)));
        assert!(leaves(&ruling), "the latch is stored first");
    }
}

#[test]
fn migrate_without_evidence_and_without_a_latch_waits() {
    let mut seen = seen(Phase::Migrate, None);
    seen.facts.migration_holder = None;
    seen.held_by_other = false;
    seen.migration_lease_idle = true;
    let ruling = rule(&seen);
    assert_eq!(ruling.latch, None);
    assert!(leaves(&ruling));
}

#[test]
fn migrate_with_a_latch_competes_whatever_the_leases_say_now() {
    let mut seen = seen(Phase::Migrate, Some(latch(Phase::Prepare, false)));
    seen.facts.main_holder = None;
    seen.facts.migration_holder = None;
    seen.facts.controller_managers = external();
    let ruling = rule(&seen);
    assert_eq!(ruling.stance, Stance::Compete);
    assert_eq!(ruling.latch, Some(latch(Phase::Migrate, false)));
    seen.holding = true;
    assert_eq!(
        rule(&seen).latch,
        Some(latch(Phase::Migrate, true)),
        "having held it is written down"
    );
}

#[test]
fn a_latch_of_another_object_counts_as_none() {
    let mut seen = seen(
        Phase::Migrate,
        Some(Latch {
            uid: "old".into(),
            ..latch(Phase::Migrate, true)
        }),
    );
    seen.facts.migration_holder = None;
    assert!(leaves(&rule(&seen)));
    assert_eq!(rule(&seen).latch, None);
}

#[test]
fn an_unguarded_old_manager_voids_the_latch_and_keeps_us_away() {
    let mut seen = seen(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    seen.facts.controller_managers = unguarded();
    let ruling = rule(&seen);
    assert_eq!(ruling.latch, None);
    assert!(leaves(&ruling));
}

#[test]
fn an_unguarded_old_manager_beside_our_hold_is_an_alarm_in_every_phase() {
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut seen = seen(phase, Some(latch(phase, true)));
        seen.facts.controller_managers = unguarded();
        seen.holding = true;
        let ruling = rule(&seen);
        assert!(
            matches!(ruling.stance, Stance::Alarm(_)),
            "{phase:?}: {:?}",
            ruling.stance
        );
        assert_eq!(ruling.latch, None);
    }
}

#[test]
fn an_unguarded_template_that_runs_nowhere_is_no_alarm() {
    let mut seen = seen(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    let mut stopped = kcm(Form::InTree {
        leader_migration: false,
    });
    stopped.running = false;
    seen.facts.controller_managers = Sight::Known(vec![stopped]);
    seen.holding = true;
    assert_eq!(rule(&seen).stance, Stance::Compete);
}

#[test]
fn without_the_object_the_holder_keeps_the_latch_decides_and_none_means_wait() {
    let blind = || Sight::Blind("deleted".to_owned());
    let mut seen = seen(Phase::Migrate, None);
    seen.wish = blind();
    assert!(leaves(&rule(&seen)), "no latch");
    seen.holding = true;
    assert_eq!(rule(&seen).stance, Stance::Compete, "holding");
    seen.holding = false;
    seen.latch = Some(latch(Phase::Migrate, true));
    let ruling = rule(&seen);
    assert_eq!(ruling.stance, Stance::Compete, "latched in Migrate");
    assert_eq!(ruling.latch, seen.latch, "what is latched stays");
    seen.latch = Some(latch(Phase::Prepare, false));
    assert!(leaves(&rule(&seen)), "latched in Prepare");
}

#[test]
fn a_jump_of_two_phases_is_ignored() {
    let seen = seen(Phase::Complete, Some(latch(Phase::Prepare, false)));
    let ruling = rule(&seen);
    assert_eq!(ruling.phase, Some(Phase::Prepare));
    assert!(leaves(&ruling));
    assert!(ruling.warnings[0].contains("more than one step"));
}

#[test]
fn with_downtime_every_old_manager_must_be_external_and_the_lease_idle() {
    let mut seen = seen(Phase::Migrate, None);
    seen.wish = Sight::Known(Wish {
        downtime: true,
        ..wish(Phase::Migrate)
    });
    seen.held_by_other = false;
    assert!(leaves(&rule(&seen)), "an in-tree one is left");
    seen.facts.controller_managers = external();
    assert!(leaves(&rule(&seen)), "the lease is not idle");
    seen.migration_lease_idle = true;
    assert_eq!(rule(&seen).stance, Stance::Compete);
    seen.facts.controller_managers = Sight::Known(vec![]);
    assert!(leaves(&rule(&seen)), "none can be read");
    seen.facts.attested_phase = Some(Phase::Prepare);
    assert!(leaves(&rule(&seen)), "the word is for another phase");
    seen.facts.attested_phase = Some(Phase::Migrate);
    assert_eq!(rule(&seen).stance, Stance::Compete);
}

#[test]
fn a_step_back_gives_the_lease_up_at_the_phase_change_and_at_each_change_of_the_main_holder() {
    let mut seen = seen(Phase::Prepare, Some(latch(Phase::Migrate, true)));
    seen.holding = true;
    seen.held_by_other = false;
    let ruling = rule(&seen);
    assert!(matches!(ruling.stance, Stance::GiveUp(_)), "{:?}", ruling.stance);
    assert_eq!(ruling.latch, Some(latch(Phase::Prepare, true)));

    seen.latch = ruling.latch;
    assert_eq!(
        rule(&seen).stance,
        Stance::CompeteAfterYield,
        "nobody took it, so it was taken back"
    );
    seen.main_holder_changed = true;
    assert!(matches!(rule(&seen).stance, Stance::GiveUp(_)));
}

#[test]
fn a_step_back_takes_the_lease_back_after_yielding_and_ends_when_another_holds_it() {
    let mut seen = seen(Phase::Prepare, Some(latch(Phase::Prepare, true)));
    seen.held_by_other = false;
    assert_eq!(rule(&seen).stance, Stance::CompeteAfterYield, "at start, too");
    seen.held_by_other = true;
    let ruling = rule(&seen);
    assert!(leaves(&ruling));
    assert_eq!(ruling.latch, Some(latch(Phase::Prepare, false)));
}

#[test]
fn in_tree_is_not_accepted_while_we_hold_the_lease() {
    let mut seen = seen(Phase::InTree, Some(latch(Phase::Prepare, true)));
    seen.holding = true;
    seen.held_by_other = false;
    let ruling = rule(&seen);
    assert_eq!(ruling.stance, Stance::CompeteAfterYield);
    assert_eq!(ruling.phase, Some(Phase::Prepare));
    seen.holding = false;
    seen.held_by_other = true;
    assert_eq!(rule(&seen).latch, None, "then InTree voids the latch");
}

#[test]
fn a_manager_that_missed_the_steps_back_to_in_tree_does_not_own() {
    for last in [Phase::Migrate, Phase::Complete] {
        let mut seen = seen(Phase::InTree, Some(latch(last, true)));
        // The old managers cannot be read, and the migration lease is free: nothing else would keep us away.
        seen.facts.controller_managers = Sight::Known(vec![]);
        seen.facts.migration_holder = None;
        seen.held_by_other = false;
        seen.migration_lease_idle = true;
        let ruling = rule(&seen);
        assert!(leaves(&ruling), "{last:?}: {:?}", ruling.stance);
        assert_eq!(ruling.latch, None, "{last:?}");
    }
}

#[test]
fn a_jump_back_is_a_step_back() {
    for to in [Phase::Prepare, Phase::InTree] {
        let mut seen = seen(to, Some(latch(Phase::Complete, true)));
        seen.holding = true;
        seen.held_by_other = false;
        let ruling = rule(&seen);
        assert!(
            matches!(ruling.stance, Stance::GiveUp(_)),
            "{to:?}: {:?}",
            ruling.stance
        );
        assert_eq!(ruling.latch, Some(latch(Phase::Prepare, true)));
    }
}

#[test]
fn the_holder_keeps_the_lease_and_the_latch_when_the_object_is_made_again() {
    let mut seen = seen(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    seen.wish = Sight::Known(Wish {
        uid: "new".into(),
        ..wish(Phase::Migrate)
    });
    seen.holding = true;
    seen.held_by_other = false;
    let ruling = rule(&seen);
    assert_eq!(ruling.stance, Stance::Compete);
    assert_eq!(ruling.latch.unwrap().uid, "new");
}

#[test]
fn an_unguarded_template_keeps_a_manager_away_that_does_not_hold_the_lease() {
    let mut seen = seen(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    let mut template = kcm(Form::InTree {
        leader_migration: false,
    });
    template.running = false;
    seen.facts.controller_managers = Sight::Known(vec![template]);
    assert!(leaves(&rule(&seen)));
    assert_eq!(rule(&seen).latch, None);
}
