//! Each rule of the gate, red when it is taken out.

use jiff::Timestamp;
use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;

use super::*;
use crate::evidence::tests::{EXTERNAL, GUARDED, UNGUARDED, complete, held, kcm, refused, seen, unreadable};
use crate::evidence::{Configuration, ControllerManagers, Facts, LeaseFacts};
use crate::service_write::ServiceWrite;

fn spec(phase: Phase) -> MigrationSpec {
    MigrationSpec {
        uid: "u".into(),
        generation: 1,
        phase,
        attested_phase: None,
    }
}

fn latch(phase: Phase, held: bool) -> Latch {
    new_latch(
        &spec(phase),
        phase,
        Basis::LeaderMigration,
        held.then(|| "us".to_owned()),
    )
}

fn inputs(phase: Phase, latch: Option<Latch>) -> Inputs {
    Inputs {
        spec: Reading::Known(spec(phase)),
        latch: latch.map_or(Stored::Absent, Stored::Latch),
        facts: complete(),
        identity: "us".into(),
        holding: false,
        acquired: None,
        service_write: None,
        services_read: true,
        main_holder_changed: false,
        offer_again: false,
        yielded: false,
    }
}

/// A lease that was free for a full lease duration.
fn nobodys() -> LeaseFacts {
    LeaseFacts {
        read: true,
        idle: true,
        ..LeaseFacts::default()
    }
}

/// M free, for a full lease duration and for the time of an offer.
fn free(inputs: &mut Inputs) {
    inputs.facts.migration = nobodys();
    inputs.yielded = true;
}

/// This process holds M.
fn hold(inputs: &mut Inputs) {
    inputs.holding = true;
    inputs.facts.migration = held("us");
    inputs.yielded = false;
}

fn all(forms: &[&Form]) -> ControllerManagers {
    seen(forms.iter().map(|form| kcm((*form).clone())).collect())
}

fn reason(decision: &Decision) -> &'static str {
    decision.action.why().map_or("", |why| why.reason)
}

fn stands_by(decision: &Decision) -> bool {
    matches!(decision.action, LeaseAction::StandBy(_))
}

fn competes(inputs: &Inputs) -> bool {
    decide(inputs).action == LeaseAction::Compete
}

fn stored(decision: &Decision) -> &Latch {
    match &decision.latch {
        LatchChange::Store(latch) => latch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_tree_and_prepare_leave_the_migration_lease_alone_even_when_it_is_free() {
    for phase in [Phase::InTree, Phase::Prepare] {
        let mut inputs = inputs(phase, None);
        free(&mut inputs);
        assert!(stands_by(&decide(&inputs)), "{phase:?}");
        inputs.latch = Stored::Latch(latch(Phase::Prepare, false));
        assert!(stands_by(&decide(&inputs)), "{phase:?}, latched");
    }
}

#[test]
fn complete_evidence_is_latched_in_prepare_and_in_migrate_before_anything_is_acquired() {
    for phase in [Phase::Prepare, Phase::Migrate] {
        let decision = decide(&inputs(phase, None));
        assert_eq!(*stored(&decision), latch(phase, false));
        assert!(stands_by(&decision), "the latch is stored first");
    }
}

#[test]
fn migrate_without_evidence_and_without_a_latch_waits() {
    let mut inputs = inputs(Phase::Migrate, None);
    free(&mut inputs);
    let decision = decide(&inputs);
    assert_eq!(decision.latch, LatchChange::Keep);
    assert_eq!(reason(&decision), reason::EVIDENCE_MISSING);
}

#[test]
fn migrate_with_a_latch_competes_whatever_the_leases_say_now() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Prepare, false)));
    free(&mut inputs);
    inputs.facts.main.live_holder = None;
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(*stored(&decision), latch(Phase::Migrate, false));
    hold(&mut inputs);
    let recorded = Latch {
        main_holder: Some("kcm-0_a".into()),
        ..latch(Phase::Migrate, true)
    };
    assert_eq!(*stored(&decide(&inputs)), recorded, "the holders are stored");
}

#[test]
fn a_latch_of_another_object_is_marked_and_binds_nobody_without_a_readable_object() {
    let foreign = Latch {
        uid: "other".into(),
        ..latch(Phase::Migrate, true)
    };
    let mut inputs = inputs(Phase::InTree, Some(foreign.clone()));
    free(&mut inputs);
    let decision = decide(&inputs);
    let marked = Latch {
        superseded: true,
        ..foreign
    };
    assert_eq!(*stored(&decision), marked);

    inputs.latch = Stored::Latch(marked);
    inputs.spec = Reading::Unreadable("forbidden".into());
    assert!(stands_by(&decide(&inputs)));
    inputs.spec = Reading::Known(MigrationSpec {
        uid: "other".into(),
        ..spec(Phase::Migrate)
    });
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "the object that it belongs to");
    assert!(!stored(&decision).superseded);
}

#[test]
fn a_latch_of_another_object_does_not_bind_and_is_not_erased() {
    let foreign = Latch {
        uid: "other".into(),
        superseded: true,
        ..latch(Phase::Migrate, true)
    };
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(phase, Some(foreign.clone()));
        free(&mut inputs);
        for forms in [&[&GUARDED][..], &[&UNGUARDED]] {
            inputs.facts.controller_managers = all(forms);
            let decision = decide(&inputs);
            assert!(stands_by(&decision), "{phase:?}");
            assert_eq!(decision.latch, LatchChange::Keep, "{phase:?} {forms:?}");
        }
    }
}

#[test]
fn a_latch_that_cannot_be_read_is_kept_and_nothing_is_acquired() {
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(phase, None);
        inputs.latch = Stored::Unreadable("format 2".into());
        inputs.facts.controller_managers = all(&[&EXTERNAL]);
        free(&mut inputs);
        let decision = decide(&inputs);
        assert_eq!(decision.latch, LatchChange::Keep);
        assert_eq!(reason(&decision), reason::LATCH_UNREADABLE, "{phase:?}");
    }
}

#[test]
fn nothing_is_acquired_before_every_source_was_read_and_nothing_is_released_for_it() {
    type Change = fn(&mut Inputs);
    let unread: [Change; 4] = [
        |inputs| inputs.spec = Reading::Pending,
        |inputs| inputs.facts.controller_managers = ControllerManagers::default(),
        |inputs| inputs.facts.main.read = false,
        |inputs| inputs.facts.migration.read = false,
    ];
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        for (index, change) in unread.iter().enumerate() {
            let mut inputs = inputs(phase, Some(latch(Phase::Migrate, true)));
            free(&mut inputs);
            change(&mut inputs);
            let decision = decide(&inputs);
            assert_eq!(reason(&decision), reason::NOT_READ_YET, "{phase:?} {index}");
            assert_eq!(decision.latch, LatchChange::Keep);
            inputs.holding = true;
            assert!(competes(&inputs), "{phase:?} {index}");
        }
    }
}

#[test]
fn an_unguarded_old_manager_voids_the_latch_and_keeps_us_away() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    free(&mut inputs);
    inputs.facts.controller_managers = all(&[&GUARDED, &UNGUARDED]);
    let decision = decide(&inputs);
    assert_eq!(decision.latch, LatchChange::Remove);
    assert_eq!(reason(&decision), reason::UNGUARDED);
}

#[test]
fn an_unguarded_old_manager_is_to_get_the_form_of_the_phase_or_to_be_stopped() {
    for (phase, flag) in [
        (Phase::Prepare, "--enable-leader-migration"),
        (Phase::Migrate, "--cloud-provider=external"),
        (Phase::Complete, "--cloud-provider=external"),
    ] {
        let mut inputs = inputs(phase, Some(latch(phase, true)));
        inputs.facts.controller_managers = all(&[&UNGUARDED]);
        hold(&mut inputs);
        let alarm = decide(&inputs);
        assert!(matches!(alarm.action, LeaseAction::Alarm(_)));
        inputs.latch = Stored::Absent;
        inputs.holding = false;
        free(&mut inputs);
        let lasting = decide(&inputs);
        assert_eq!(
            lasting.action.why(),
            alarm.action.why(),
            "{phase}: also after the alarm"
        );
        let why = &lasting.action.why().unwrap().message;
        assert!(why.contains(flag) && why.contains("stop or delete it"), "{why}");
    }
}

#[test]
fn an_old_manager_owns_the_controllers_only_where_its_leases_show_it() {
    type Change = fn(&mut Facts);
    let cases: [(Phase, Change, Option<&str>); 11] = [
        (Phase::Prepare, |_| {}, None),
        (
            Phase::Prepare,
            |f| f.migration = nobodys(),
            Some("no process renews the migration lease"),
        ),
        (Phase::Prepare, |f| f.main = nobodys(), Some("is not being renewed")),
        (Phase::Prepare, |f| f.main.live_holder = None, None),
        (Phase::Prepare, |f| f.migration.live_holder = None, None),
        (
            Phase::Prepare,
            |f| (f.main.live_holder, f.main.idle) = (None, true),
            Some("is not being renewed"),
        ),
        (
            Phase::InTree,
            |f| f.migration = nobodys(),
            Some("no process renews the migration lease"),
        ),
        (Phase::InTree, |f| f.main = nobodys(), Some("is not being renewed")),
        (
            Phase::InTree,
            |f| {
                f.migration = nobodys();
                f.controller_managers = all(&[&UNGUARDED]);
            },
            None,
        ),
        (
            Phase::InTree,
            |f| {
                f.migration = nobodys();
                f.controller_managers = unreadable();
            },
            None,
        ),
        (
            Phase::Prepare,
            |f| {
                f.controller_managers = all(&[&Form::External { leader_migration: true }, &GUARDED]);
                f.controller_managers.seen[1].running = false;
            },
            Some("remove its --enable-leader-migration"),
        ),
    ];
    for (index, (phase, change, problem)) in cases.into_iter().enumerate() {
        let mut inputs = inputs(phase, Some(latch(Phase::Prepare, false)));
        change(&mut inputs.facts);
        let decision = decide(&inputs);
        assert!(stands_by(&decision), "{index}");
        let why = decision.action.why().unwrap();
        let expected = problem.map_or(reason::OLD_MANAGER_OWNS, |_| reason::EVIDENCE_MISSING);
        assert_eq!(why.reason, expected, "{index}");
        assert!(
            why.message.contains(problem.unwrap_or("owns the controllers")),
            "{index} {}",
            why.message
        );
    }
}

#[test]
fn an_unguarded_old_manager_beside_our_hold_is_an_alarm_in_every_phase() {
    for phase in [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(phase, Some(latch(phase, true)));
        inputs.facts.controller_managers = all(&[&GUARDED, &UNGUARDED]);
        hold(&mut inputs);
        let decision = decide(&inputs);
        assert!(matches!(decision.action, LeaseAction::Alarm(_)), "{phase:?}");
        assert_eq!(decision.latch, LatchChange::Remove);
        inputs.spec = Reading::Unreadable("deleted".into());
        assert!(matches!(decide(&inputs).action, LeaseAction::Alarm(_)), "{phase:?}");
    }
}

#[test]
fn after_an_alarm_an_owner_is_found_when_every_old_manager_is_external() {
    for phase in [Phase::Migrate, Phase::Complete] {
        let mut inputs = inputs(phase, None);
        free(&mut inputs);
        inputs.facts.controller_managers = all(&[&EXTERNAL, &EXTERNAL]);
        let decision = decide(&inputs);
        assert_eq!(stored(&decision).basis, Basis::External);
        assert!(stands_by(&decision), "the latch is stored first");
        inputs.latch = Stored::Latch(stored(&decision).clone());
        assert!(competes(&inputs), "{phase:?}");
    }
}

#[test]
fn a_template_without_leader_migration_counts_only_before_the_first_hold() {
    for (held, competing) in [(false, false), (true, true)] {
        let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, held)));
        free(&mut inputs);
        inputs.facts.controller_managers = all(&[&EXTERNAL, &UNGUARDED]);
        inputs.facts.controller_managers.seen[1].running = false;
        assert_eq!(competes(&inputs), competing);
        assert_eq!(decide(&inputs).latch, LatchChange::Keep, "it voids nothing");
        hold(&mut inputs);
        assert!(competes(&inputs), "it is no alarm");
    }
}

#[test]
fn evidence_that_can_be_read_is_checked_again_before_the_first_acquisition() {
    let own_file = Configuration::Unproven("it names its own file /own.yaml".into());
    for (held_by_us, competing) in [(false, false), (true, true)] {
        let mut migrating = inputs(Phase::Migrate, Some(latch(Phase::Migrate, held_by_us)));
        free(&mut migrating);
        for readable in [true, false] {
            if !readable {
                migrating.spec = Reading::Unreadable("forbidden".into());
            }
            assert!(competes(&migrating), "it confirms the latch");

            let mut other_file = migrating.clone();
            other_file.facts.controller_managers.seen[0].configuration = own_file.clone();
            assert_eq!(competes(&other_file), competing, "{readable}");
            other_file.facts.attested_phase = Some(Phase::Prepare);
            assert!(competes(&other_file), "the operator's word");

            let mut unlisted = migrating.clone();
            unlisted.facts.main = held("cp-3_a");
            assert_eq!(competes(&unlisted), competing, "{readable}");
            let mut same = unlisted.clone();
            same.facts.migration.named_holder = Some("cp-3_a".into());
            assert!(competes(&same), "it had leader migration on, and its Pod is gone");
            let mut acquired = unlisted.clone();
            acquired.facts.migration = held(&acquired.identity);
            assert!(competes(&acquired), "it acquired the lease, and has no answer yet");
            let mut unread = unlisted.clone();
            unread.facts.controller_managers.unreadable = vec!["forbidden".into()];
            assert!(competes(&unread), "nothing that can be read contradicts the latch");
            unlisted.facts.attested_phase = Some(Phase::Prepare);
            assert!(competes(&unlisted), "the operator's word");
        }
    }
}

#[test]
fn without_the_object_the_holder_keeps_the_latch_decides_and_none_means_wait() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.spec = Reading::Unreadable("deleted".to_owned());
    free(&mut inputs);
    assert_eq!(reason(&decide(&inputs)), reason::MIGRATION_UNREADABLE);
    inputs.latch = Stored::Latch(latch(Phase::Migrate, true));
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "latched in Migrate");
    assert_eq!(decision.latch, LatchChange::Keep);
    inputs.latch = Stored::Latch(latch(Phase::Prepare, false));
    assert!(stands_by(&decide(&inputs)), "latched in Prepare");
    hold(&mut inputs);
    assert!(competes(&inputs), "holding");
}

#[test]
fn without_the_object_a_new_main_holder_is_offered_the_lease() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.spec = Reading::Unreadable("forbidden".to_owned());
    hold(&mut inputs);
    inputs.main_holder_changed = true;
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "the new holder is external");
    inputs.latch = Stored::Latch(stored(&decision).clone());
    inputs.facts.controller_managers = all(&[]);
    assert!(competes(&inputs), "its Pod is gone, and its lease has not expired");
    inputs.facts.main = held("unread_a");
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
    inputs.holding = false;
    inputs.main_holder_changed = false;
    free(&mut inputs);
    inputs.yielded = false;
    assert!(matches!(decide(&inputs).action, LeaseAction::Yield(_)));
    inputs.yielded = true;
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(
        stored(&decision).main_holder.as_deref(),
        Some("unread_a"),
        "it was offered in vain"
    );
}

#[test]
fn without_the_object_and_without_a_latch_an_external_main_holder_is_offered_nothing() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.spec = Reading::Unreadable("forbidden".to_owned());
    hold(&mut inputs);
    inputs.main_holder_changed = true;
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert!(competes(&inputs));
}

#[test]
fn an_external_main_holder_is_recorded_while_the_lease_is_held() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert_eq!(decide(&inputs).latch, LatchChange::Keep, "not held");
    hold(&mut inputs);
    let recorded = stored(&decide(&inputs)).clone();
    assert_eq!(recorded.main_holder.as_deref(), Some("kcm-0_a"));

    inputs.latch = Stored::Latch(recorded);
    inputs.facts.main.named_holder = None;
    assert_eq!(decide(&inputs).latch, LatchChange::Keep, "nothing new");
    inputs.facts.main = held("unread_a");
    assert_eq!(decide(&inputs).latch, LatchChange::Keep, "it may be in-tree");
    inputs.facts.main = held("kcm-0_a");
    inputs.facts.controller_managers = all(&[&EXTERNAL, &GUARDED]);
    assert_eq!(stored(&decide(&inputs)).main_holder, None, "both have this host name");
}

#[test]
fn a_main_holder_that_can_be_read_and_is_in_tree_is_offered_the_lease_at_each_restart() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.spec = Reading::Unreadable("forbidden".to_owned());
    free(&mut inputs);
    let decision = decide(&inputs);
    assert_eq!(
        (decision.action, decision.latch),
        (LeaseAction::Compete, LatchChange::Keep)
    );
}

#[test]
fn without_the_object_a_step_back_is_offered_again_after_a_restart() {
    let recorded = Latch {
        main_holder: Some("kcm-0_a".into()),
        ..latch(Phase::Prepare, true)
    };
    let mut inputs = inputs(Phase::Prepare, Some(recorded));
    inputs.spec = Reading::Unreadable("forbidden".to_owned());
    free(&mut inputs);
    inputs.yielded = false;
    assert!(matches!(decide(&inputs).action, LeaseAction::Yield(_)));
}

#[test]
fn a_jump_of_two_phases_is_ignored_while_an_old_manager_is_in_tree() {
    let decision = decide(&inputs(Phase::Complete, Some(latch(Phase::Prepare, false))));
    assert_eq!(decision.phase, Some(Phase::Prepare));
    assert!(stands_by(&decision));
    assert!(decision.warnings[0].contains("more than one step"));

    let mut external = inputs(Phase::Complete, Some(latch(Phase::Prepare, false)));
    free(&mut external);
    external.facts.controller_managers = all(&[&EXTERNAL]);
    assert!(competes(&external), "no old manager owns anything");
}

#[test]
fn without_evidence_every_old_manager_must_be_external_and_the_lease_idle() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.migration = held("other");
    assert_eq!(
        reason(&decide(&inputs)),
        reason::EVIDENCE_MISSING,
        "an in-tree one is left"
    );
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert_eq!(reason(&decide(&inputs)), reason::LEASE_IN_USE);
    free(&mut inputs);
    assert_eq!(stored(&decide(&inputs)).basis, Basis::External);

    for unknown in [seen(vec![]), unreadable()] {
        inputs.facts.controller_managers = unknown;
        let decision = decide(&inputs);
        assert_eq!(reason(&decision), reason::EVIDENCE_MISSING, "none can be read");
        let why = &decision.action.why().unwrap().message;
        assert!(why.contains("spec.attestedPhase: Migrate"), "{why}");
        inputs.facts.attested_phase = Some(Phase::Prepare);
        assert_eq!(
            reason(&decide(&inputs)),
            reason::EVIDENCE_MISSING,
            "the word is for another phase"
        );
        inputs.facts.attested_phase = Some(Phase::Migrate);
        assert_eq!(stored(&decide(&inputs)).basis, Basis::Attested);
        inputs.facts.attested_phase = None;
    }

    inputs.facts.controller_managers = unreadable();
    inputs.facts.controller_managers.seen = vec![kcm(GUARDED)];
    let decision = decide(&inputs);
    let why = &decision.action.why().unwrap().message;
    assert!(!why.contains("if none is in-tree any more"), "one is in-tree: {why}");
}

#[test]
fn external_managers_are_no_evidence_while_one_of_them_and_this_manager_run_node_ipam() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.controller_managers.seen[0].node_ipam = Placement::Main;
    free(&mut inputs);
    assert_eq!(stored(&decide(&inputs)).basis, Basis::External);

    inputs.facts.own.node_ipam = Placement::Migrated;
    let decision = decide(&inputs);
    assert_eq!(reason(&decision), reason::EVIDENCE_MISSING);
    let why = &decision.action.why().unwrap().message;
    assert!(why.contains("kcm-0 runs node IPAM"), "{why}");
}

#[test]
fn the_operators_word_stands_in_for_a_shell_script_that_starts_an_old_manager() {
    let mut inputs = inputs(Phase::Migrate, None);
    free(&mut inputs);
    inputs.facts.controller_managers.seen = vec![kcm(Form::Unreadable {
        reason: "a shell script".into(),
    })];
    let decision = decide(&inputs);
    let why = &decision.action.why().unwrap().message;
    assert!(why.contains("spec.attestedPhase: Migrate"), "{why}");
    inputs.facts.attested_phase = Some(Phase::Migrate);
    assert_eq!(stored(&decide(&inputs)).basis, Basis::Attested);

    inputs.facts.controller_managers.seen[0].must_change = true;
    assert_eq!(reason(&decide(&inputs)), reason::EVIDENCE_MISSING, "a rollout ends");
}

#[test]
fn an_old_manager_that_holds_the_lease_for_nothing_is_named() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.controller_managers = all(&[&Form::External { leader_migration: true }]);
    let decision = decide(&inputs);
    assert_eq!(reason(&decision), reason::LEASE_IN_USE);
    let why = &decision.action.why().unwrap().message;
    assert!(
        why.contains("kcm-0") && why.contains("--enable-leader-migration"),
        "{why}"
    );
}

#[test]
fn the_holder_of_the_lease_is_an_external_manager_if_its_host_name_says_so_or_it_can_be_no_other() {
    let template = ControllerManager {
        host_names: Vec::new(),
        ..kcm(Form::External { leader_migration: true })
    };
    let mut facts = complete();
    facts.controller_managers = seen(vec![template]);
    assert!(held_for_nothing(&facts).is_some(), "both leases have one holder");
    facts.controller_managers.seen.push(kcm(GUARDED));
    assert!(held_for_nothing(&facts).is_none(), "it may be the other one");
    facts.controller_managers.seen.pop();
    facts.migration = held("other_a");
    assert!(held_for_nothing(&facts).is_none(), "no kube-controller-manager");
}

#[test]
fn a_step_back_offers_the_lease_at_the_phase_change_at_a_new_main_holder_and_after_the_backoff() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Migrate, true)));
    hold(&mut inputs);
    let decision = decide(&inputs);
    assert!(matches!(decision.action, LeaseAction::Release(_)));
    assert_eq!(*stored(&decision), latch(Phase::Prepare, true));

    inputs.latch = Stored::Latch(latch(Phase::Prepare, true));
    assert!(competes(&inputs), "nobody acquired it, so it was acquired again");
    for set in [
        (|inputs| inputs.main_holder_changed = true) as fn(&mut Inputs),
        |inputs| inputs.offer_again = true,
    ] {
        let mut inputs = inputs.clone();
        set(&mut inputs);
        assert_eq!(reason(&decide(&inputs)), reason::STEPPING_BACK);
        assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
    }
}

#[test]
fn a_step_back_of_a_holder_that_no_latch_names_is_one() {
    for held in [None, Some("our predecessor")] {
        let recorded = Latch {
            held_by: held.map(str::to_owned),
            ..latch(Phase::Migrate, false)
        };
        let mut inputs = inputs(Phase::Prepare, Some(recorded));
        inputs.facts.controller_managers = all(&[&EXTERNAL]);
        hold(&mut inputs);
        let decision = decide(&inputs);
        assert_eq!(
            decision.action,
            LeaseAction::Compete,
            "it was acquired without the object"
        );
        assert_eq!(stored(&decision).held_by.as_deref(), Some("us"));
    }
}

#[test]
fn a_step_back_acquires_the_lease_again_after_yielding_and_ends_when_another_holds_it() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Prepare, true)));
    inputs.facts.migration = held("us");
    assert!(
        matches!(decide(&inputs).action, LeaseAction::Yield(_)),
        "our predecessor's record"
    );
    assert_eq!(decide(&inputs).latch, LatchChange::Keep);
    free(&mut inputs);
    assert!(competes(&inputs));
    inputs.facts.migration = held("kcm-0_a");
    let decision = decide(&inputs);
    assert!(stands_by(&decision));
    assert_eq!(*stored(&decision), latch(Phase::Prepare, false));
}

#[test]
fn in_tree_is_followed_unless_nobody_would_own_the_controllers() {
    let external = all(&[&EXTERNAL]);
    let guarded = all(&[&EXTERNAL, &GUARDED]);
    for (old_managers, followed) in [(external, false), (guarded, true), (unreadable(), true)] {
        for holding in [true, false] {
            let mut inputs = inputs(Phase::InTree, Some(latch(Phase::Prepare, true)));
            inputs.facts.controller_managers = old_managers.clone();
            if holding {
                hold(&mut inputs);
            } else {
                free(&mut inputs);
            }
            let decision = decide(&inputs);
            if followed {
                assert_eq!(decision.latch, LatchChange::Remove);
                assert_ne!(decision.action, LeaseAction::Compete);
            } else {
                assert_eq!(decision.phase, Some(Phase::Prepare));
                assert_eq!(decision.action, LeaseAction::Compete);
                assert!(decision.warnings[0].contains("InTree is not followed"));
            }
        }
    }
}

#[test]
fn in_tree_voids_the_latch_when_the_old_manager_holds_the_lease() {
    let mut inputs = inputs(Phase::InTree, Some(latch(Phase::Prepare, true)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.migration = held("kcm-0_a");
    assert_eq!(decide(&inputs).latch, LatchChange::Remove);
}

#[test]
fn a_jump_back_is_a_step_back() {
    for to in [Phase::Prepare, Phase::InTree] {
        let mut inputs = inputs(to, Some(latch(Phase::Complete, true)));
        inputs.facts.controller_managers = all(&[&EXTERNAL]);
        hold(&mut inputs);
        let decision = decide(&inputs);
        assert_eq!(decision.action, LeaseAction::Compete, "{to:?}: no old manager waits");
        let stored = stored(&decision);
        assert_eq!((stored.phase, stored.held_by.as_deref()), (Phase::Prepare, Some("us")));

        inputs.facts.controller_managers = all(&[&GUARDED]);
        assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)), "{to:?}");
    }
}

#[test]
fn a_step_back_offers_nothing_while_the_leader_is_external() {
    type Change = fn(&mut Inputs);
    let reasons: [Change; 3] = [
        |inputs| inputs.latch = Stored::Latch(latch(Phase::Migrate, true)),
        |inputs| inputs.main_holder_changed = true,
        |inputs| inputs.offer_again = true,
    ];
    for change in reasons {
        let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Prepare, true)));
        hold(&mut inputs);
        let guarded = ControllerManager {
            host_names: vec!["kcm-1".into()],
            ..kcm(GUARDED)
        };
        inputs.facts.controller_managers = seen(vec![kcm(EXTERNAL), guarded]);
        change(&mut inputs);
        let decision = decide(&inputs);
        assert_eq!(decision.action, LeaseAction::Compete, "it would be in vain");
        let mut rolled = inputs.clone();
        rolled.latch = Stored::Latch(stored(&decision).clone());
        rolled.facts.controller_managers.seen.remove(0);
        assert!(competes(&rolled), "its Pod is gone, and its lease has not expired");

        for leader in ["kcm-1_a", "unlisted_a"] {
            inputs.facts.main = held(leader);
            assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)), "{leader}");
        }
        inputs.facts.controller_managers = unreadable();
        assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)), "unreadable");
    }
}

#[test]
fn without_a_main_holder_a_step_back_offers_the_lease_unless_every_old_manager_is_external() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Migrate, true)));
    hold(&mut inputs);
    inputs.facts.main = nobodys();
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(_)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert!(competes(&inputs), "none of them would acquire it");
}

#[test]
fn the_lease_is_not_offered_again_while_nobody_leads() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Prepare, true)));
    hold(&mut inputs);
    inputs.offer_again = true;
    inputs.facts.main.live_holder = None;
    assert!(competes(&inputs));
}

#[test]
fn a_latch_from_before_unobserved_changes_needs_command_lines_or_the_operators_word() {
    for (generation, current) in [(1, true), (2, true), (3, false)] {
        for phase in [Phase::Prepare, Phase::Migrate] {
            let mut inputs = inputs(phase, Some(latch(Phase::Migrate, true)));
            free(&mut inputs);
            inputs.spec = Reading::Known(MigrationSpec {
                generation,
                ..spec(phase)
            });
            inputs.facts.controller_managers = unreadable();
            assert_eq!(competes(&inputs), current, "{phase:?} {generation}");
            assert_eq!(decide(&inputs).warnings.is_empty(), current, "{phase:?} {generation}");
            if generation == 2 {
                assert_eq!(stored(&decide(&inputs)).generation, 2, "{phase:?}: observed now");
            }
            if !current {
                let decision = decide(&inputs);
                assert!(
                    decision.warnings[0].contains("no manager observed"),
                    "{:?}",
                    decision.warnings
                );
                assert_eq!(decision.latch, LatchChange::Keep);
                inputs.facts.controller_managers = all(&[&EXTERNAL]);
                assert!(competes(&inputs), "command lines show it");
            }
        }
    }
}

#[test]
fn the_holder_keeps_the_lease_and_the_latch_when_the_object_is_created_again() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    inputs.spec = Reading::Known(MigrationSpec {
        uid: "new".into(),
        ..spec(Phase::Migrate)
    });
    hold(&mut inputs);
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(stored(&decision).uid, "new");
}

#[test]
fn a_holder_whose_latch_was_deleted_stores_a_new_one() {
    for phase in [Phase::Prepare, Phase::Migrate] {
        let mut inputs = inputs(phase, None);
        hold(&mut inputs);
        inputs.acquired = Some(at(7));
        let decision = decide(&inputs);
        assert_eq!(decision.action, LeaseAction::Compete, "{phase}");
        let latch = stored(&decision);
        assert_eq!((latch.held_since, latch.held_by.as_deref()), (Some(at(7)), Some("us")));
    }
}

/// A write of a kube-controller-manager so many seconds after the acquisition of M.
fn wrote(inputs: &mut Inputs, seconds: i64) {
    inputs.service_write = Some(ServiceWrite {
        service: "shop/web".into(),
        time: at(seconds),
    });
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_service_that_an_old_manager_wrote_after_the_acquisition_is_an_alarm() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, false)));
    inputs.facts.controller_managers = unreadable();
    hold(&mut inputs);
    inputs.acquired = Some(at(0));
    for seconds in [-60, 0, 15] {
        wrote(&mut inputs, seconds);
        assert!(competes(&inputs), "{seconds}: the former owner, or the clocks");
    }

    wrote(&mut inputs, 16);
    let decision = decide(&inputs);
    assert!(matches!(decision.action, LeaseAction::Alarm(_)));
    let why = &decision.action.why().unwrap().message;
    assert!(
        why.contains("shop/web") && why.contains("1970-01-01T00:00:16Z"),
        "{why}"
    );
    let latch = stored(&decision);
    assert_eq!(
        (latch.held_since, latch.held_by.as_deref()),
        (Some(at(0)), Some("us")),
        "for the successor"
    );

    let created_again = MigrationSpec {
        uid: "new".into(),
        generation: 5,
        ..spec(Phase::Migrate)
    };
    inputs.spec = Reading::Known(created_again);
    let decision = decide(&inputs);
    let latch = stored(&decision);
    assert_eq!((latch.uid.as_str(), latch.generation), ("new", 5));

    inputs.acquired = None;
    assert!(competes(&inputs), "an API server without field managers shows nothing");
}

#[test]
fn after_such_an_alarm_nobody_competes_until_the_writes_have_ended() {
    let held = Latch {
        held_since: Some(at(0)),
        ..latch(Phase::Migrate, true)
    };
    for spec in [
        Reading::Known(spec(Phase::Migrate)),
        Reading::Unreadable("forbidden".into()),
    ] {
        let mut inputs = inputs(Phase::Migrate, Some(held.clone()));
        inputs.spec = spec;
        free(&mut inputs);
        wrote(&mut inputs, 16);
        let decision = decide(&inputs);
        assert!(stands_by(&decision));
        assert_eq!(
            (reason(&decision), decision.latch),
            (reason::SECOND_OWNER, LatchChange::Keep)
        );
        let mut of_predecessor = inputs.clone();
        of_predecessor.latch = Stored::Latch(Latch {
            held_by: Some("our predecessor".into()),
            ..held.clone()
        });
        of_predecessor.facts.migration.named_holder = Some("our predecessor".into());
        assert_eq!(reason(&decide(&of_predecessor)), reason::SECOND_OWNER);

        inputs.service_write = None;
        assert!(competes(&inputs), "none is recent");
    }
}

#[test]
fn the_writes_of_an_old_manager_that_held_the_lease_are_its_own_work() {
    let held = Latch {
        held_since: Some(at(0)),
        ..latch(Phase::Migrate, true)
    };
    let mut inputs = inputs(Phase::Migrate, Some(held));
    wrote(&mut inputs, 600);
    inputs.facts.migration = LeaseFacts {
        read: true,
        named_holder: Some("kcm-0_a".into()),
        idle: true,
        ..LeaseFacts::default()
    };
    let decision = decide(&inputs);
    assert_eq!(
        decision.action,
        LeaseAction::Compete,
        "it died and did not release the lease"
    );
    assert_eq!(stored(&decision).held_since, None, "also after its record is gone");

    inputs.latch = Stored::Latch(latch(Phase::Migrate, false));
    free(&mut inputs);
    assert!(competes(&inputs), "we never held it");
}

#[test]
fn a_lease_that_may_not_be_watched_is_named_instead_of_an_endless_wait() {
    let standing_by = |phase, latch, forms: &[&Form]| {
        let mut inputs = inputs(phase, latch);
        inputs.facts.controller_managers = all(forms);
        inputs.facts.migration = refused();
        decide(&inputs).action.why().unwrap().clone()
    };
    for why in [
        standing_by(Phase::Migrate, None, &[&EXTERNAL]),
        standing_by(Phase::Prepare, Some(latch(Phase::Prepare, true)), &[&GUARDED]),
    ] {
        assert!(
            why.message.contains("Role outrigger-manager:migration-lease"),
            "{why:?}"
        );
    }
}

#[test]
fn in_phase_in_tree_a_manager_without_leader_migration_is_the_owner_and_no_problem() {
    let mut inputs = inputs(Phase::InTree, None);
    inputs.facts.controller_managers = seen(vec![kcm(UNGUARDED)]);
    let decision = decide(&inputs);
    assert!(stands_by(&decision));
    let why = decision.action.why().unwrap();
    assert_eq!(why.reason, reason::OLD_MANAGER_OWNS);
    assert!(why.message.contains("set spec.phase to Prepare"), "{}", why.message);

    hold(&mut inputs);
    assert!(matches!(decide(&inputs).action, LeaseAction::Alarm(_)));
}

#[test]
fn external_managers_are_no_evidence_while_an_unread_one_leads() {
    let mut inputs = inputs(Phase::Migrate, None);
    free(&mut inputs);
    inputs.facts.controller_managers = seen(vec![kcm(EXTERNAL)]);
    assert!(matches!(decide(&inputs).latch, LatchChange::Store(_)), "kcm-0 leads");

    inputs.facts.main = held("cp-3_a");
    let decision = decide(&inputs);
    assert!(stands_by(&decision));
    assert_eq!(decision.latch, LatchChange::Keep);
    assert!(decision.action.why().unwrap().message.contains("cp-3_a"));

    inputs.facts.attested_phase = Some(Phase::Migrate);
    assert!(
        matches!(decide(&inputs).latch, LatchChange::Store(_)),
        "the operator's word"
    );
}

#[test]
fn nothing_is_acquired_before_the_services_are_read() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, true)));
    free(&mut inputs);
    inputs.services_read = false;
    assert_eq!(reason(&decide(&inputs)), reason::NOT_READ_YET);
    hold(&mut inputs);
    assert!(competes(&inputs), "nothing is released for it");
}
