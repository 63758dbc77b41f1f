//! Each rule of the gate, red when it is taken out.

use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::Attestation;

use super::*;
use crate::facts::{Basis, Configuration, ControllerManagers, Facts, LeaseFacts, Lock};
use crate::samples::{EXTERNAL, GUARDED, UNGUARDED, complete, held, kcm, refused, seen, unreadable};
use crate::why::{Unproven, UnprovenReason, code};

fn spec(phase: Phase) -> MigrationSpec {
    MigrationSpec {
        uid: "u".into(),
        generation: 1,
        phase,
        attestation: None,
        seen_unattested: true,
    }
}

fn latch(phase: Phase, held: bool) -> Latch {
    Latch {
        held_by: held.then(|| "us".to_owned()),
        seen_unattested: true,
        proven: vec![proven("kcm-0_a", Basis::MigrationLease)],
        ..new_latch(&spec(phase), phase)
    }
}

fn proven(identity: &str, by: Basis) -> Proven {
    Proven {
        identity: identity.into(),
        by,
    }
}

/// K and M are held by a guarded kube-controller-manager.
fn inputs(phase: Phase, latch: Option<Latch>) -> Inputs {
    Inputs {
        spec: Reading::Known(spec(phase)),
        latch: latch.map_or(Stored::Absent, Stored::Latch),
        facts: complete(),
        identity: "us".into(),
        holding: false,
        offer_due: false,
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

/// Phase Migrate or Complete after the roll: every kube-controller-manager is external, and M is held by this process.
fn migrated(phase: Phase) -> Inputs {
    let mut inputs = inputs(phase, Some(latch(phase, true)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.main = held("kcm-0_b");
    hold(&mut inputs);
    inputs
}

fn all(forms: &[&Form]) -> ControllerManagers {
    let on_host = |(index, form): (usize, &&Form)| ControllerManager {
        object: format!("Pod tenant/kcm-{index}"),
        host_names: vec![format!("kcm-{index}")],
        ..kcm((*form).clone())
    };
    seen(forms.iter().enumerate().map(on_host).collect())
}

fn word(phase: Phase) -> Option<Attestation> {
    Some(Attestation {
        phase,
        holders: Vec::new(),
    })
}

fn code_of(decision: &Decision) -> &'static str {
    decision.action.why().map_or("", Why::code)
}

fn text(decision: &Decision) -> String {
    decision.action.why().map(Why::message).unwrap_or_default()
}

fn stands_by(decision: &Decision) -> bool {
    matches!(decision.action, LeaseAction::StandBy(_))
}

fn competes(inputs: &Inputs) -> bool {
    decide(inputs).action == LeaseAction::Compete
}

fn is_alarm(inputs: &Inputs) -> bool {
    matches!(decide(inputs).action, LeaseAction::Alarm(_))
}

fn stored(decision: &Decision) -> &Latch {
    match &decision.latch {
        LatchChange::Store(latch) => latch,
        other => panic!("{other:?}"),
    }
}

const PHASES: [Phase; 4] = [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete];

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
fn complete_evidence_is_latched_before_anything_is_acquired() {
    for phase in [Phase::Prepare, Phase::Migrate] {
        let decision = decide(&inputs(phase, None));
        assert_eq!(*stored(&decision), latch(phase, false));
        assert!(stands_by(&decision), "the latch is stored first");
    }
}

#[test]
fn in_migrate_a_latch_competes_for_a_lease_whose_holder_is_the_proven_leader() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Prepare, false)));
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "it waits for the expiry");
    assert_eq!(*stored(&decision), latch(Phase::Migrate, false));

    free(&mut inputs);
    inputs.facts.main = nobodys();
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert!(competes(&inputs), "nobody holds K, and nobody may act without M");
    inputs.facts.main = held("kcm-0_b");
    assert!(competes(&inputs), "an external one holds K");
    hold(&mut inputs);
    let stored = stored(&decide(&inputs)).clone();
    assert_eq!(stored.held_by.as_deref(), Some("us"));
    assert_eq!(stored.proven[0], proven("kcm-0_b", Basis::External), "for a restart");
}

#[test]
fn the_first_takeover_needs_no_old_manager_to_be_rolled() {
    let mixed = all(&[&EXTERNAL, &GUARDED, &GUARDED]);
    for latch in [None, Some(latch(Phase::Migrate, false))] {
        let mut inputs = inputs(Phase::Migrate, latch);
        inputs.facts.controller_managers = mixed.clone();
        inputs.facts.main = held("kcm-0_b");
        free(&mut inputs);
        if inputs.latch == Stored::Absent {
            let decision = decide(&inputs);
            assert_eq!(code_of(&decision), code::STORING_EVIDENCE);
            inputs.latch = Stored::Latch(stored(&decision).clone());
        }
        assert!(competes(&inputs), "each of them acts only with M");
        inputs.facts.controller_managers.seen[2].form = UNGUARDED;
        let decision = decide(&inputs);
        assert_eq!(code_of(&decision), code::EVIDENCE_MISSING, "it may acquire K");
        assert!(text(&decision).contains("Pod tenant/kcm-2"), "{}", text(&decision));
    }
}

#[test]
fn without_a_latch_the_lease_has_to_be_idle_or_the_leaders() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.main = held("kcm-0_b");
    inputs.facts.migration = held("other_a");
    let decision = decide(&inputs);
    assert_eq!(
        (code_of(&decision), decision.latch),
        (code::LEASE_IN_USE, LatchChange::Keep)
    );
    free(&mut inputs);
    assert_eq!(code_of(&decide(&inputs)), code::STORING_EVIDENCE);
}

#[test]
fn a_leader_that_is_not_proven_keeps_us_away() {
    type Change = fn(&mut Facts);
    let cases: [(&str, Change); 5] = [
        (code::UNGUARDED, |facts| {
            facts.controller_managers = all(&[&UNGUARDED, &EXTERNAL])
        }),
        (code::LEADER_NOT_PROVEN, |facts| facts.main = held("hidden_a")),
        (code::LEADER_NOT_PROVEN, |facts| {
            facts.controller_managers = unreadable()
        }),
        (code::LISTING, |facts| {
            facts.controller_managers.current = false;
            facts.controller_managers.seen[0].current = false;
        }),
        (code::LISTING, |facts| {
            facts.main = held("hidden_a");
            facts.controller_managers.current = false;
        }),
    ];
    for (index, (expected, change)) in cases.into_iter().enumerate() {
        for phase in [Phase::Migrate, Phase::Complete] {
            let mut inputs = migrated(phase);
            change(&mut inputs.facts);
            let decision = decide(&inputs);
            assert_eq!(code_of(&decision), expected, "{index}");
            match expected {
                code::LISTING => assert!(matches!(decision.action, LeaseAction::Pause(_)), "{index}"),
                _ => assert!(matches!(decision.action, LeaseAction::Alarm(_)), "{index}"),
            }
            assert!(
                !matches!(decision.latch, LatchChange::Remove),
                "the latch stays: {index}"
            );

            inputs.holding = false;
            free(&mut inputs);
            assert!(stands_by(&decide(&inputs)), "{index}");
            assert_eq!(code_of(&decide(&inputs)), expected, "{index}");
            inputs.spec = Reading::Unreadable("deleted".into());
            assert_eq!(code_of(&decide(&inputs)), expected, "without the object: {index}");
        }
    }
}

#[test]
fn after_an_alarm_the_lease_is_acquired_when_a_proven_process_leads() {
    let mut inputs = migrated(Phase::Migrate);
    inputs.facts.main = held("hidden_a");
    assert!(is_alarm(&inputs));
    inputs.holding = false;
    free(&mut inputs);
    inputs.facts.main = held("kcm-0_c");
    inputs.facts.controller_managers = all(&[&EXTERNAL, &GUARDED]);
    assert!(competes(&inputs), "in the middle of a roll, too");
}

#[test]
fn an_unguarded_standby_is_a_warning() {
    for phase in [Phase::Migrate, Phase::Complete] {
        let mut inputs = migrated(phase);
        inputs.facts.controller_managers = all(&[&EXTERNAL, &UNGUARDED]);
        let decision = decide(&inputs);
        assert_eq!(decision.action, LeaseAction::Compete);
        assert_eq!(
            decision.warnings,
            [Warning::UnguardedStandby("Pod tenant/kcm-1".into())]
        );
        inputs.facts.main = nobodys();
        let decision = decide(&inputs);
        assert_eq!(code_of(&decision), code::MAIN_LEASE_NOT_HELD, "it may be the next one");
        assert!(matches!(decision.action, LeaseAction::Pause(_)));
        inputs.facts.main = held("kcm-1_a");
        assert!(is_alarm(&inputs), "it is");
    }
}

#[test]
fn an_in_tree_manager_that_elects_no_leader_is_an_alarm_by_itself() {
    for phase in PHASES {
        let mut inputs = migrated(phase);
        inputs.facts.controller_managers = all(&[&EXTERNAL, &UNGUARDED]);
        inputs.facts.controller_managers.seen[1].lock = Lock::Other("--leader-elect=false".into());
        let decision = decide(&inputs);
        assert_eq!(code_of(&decision), code::UNLOCKED, "{phase}");
        assert!(matches!(decision.action, LeaseAction::Alarm(_)));
        assert!(text(&decision).contains("--leader-elect=false"));
        inputs.holding = false;
        free(&mut inputs);
        if phase > Phase::InTree {
            assert_eq!(code_of(&decide(&inputs)), code::UNLOCKED, "{phase}");
        }
    }
}

#[test]
fn a_free_main_lease_pauses_only_beside_a_possible_taker() {
    type Change = fn(&mut Facts);
    let takers: [Change; 5] = [
        |facts| facts.controller_managers = unreadable(),
        |facts| facts.controller_managers = all(&[]),
        |facts| facts.controller_managers.seen.push(kcm(UNGUARDED)),
        |facts| {
            facts.controller_managers.seen.push(kcm(Form::Unreadable {
                reason: "a shell script".into(),
            }));
        },
        |facts| facts.main.failure = refused().failure,
    ];
    let mut inputs = migrated(Phase::Complete);
    inputs.facts.main = nobodys();
    assert!(competes(&inputs));
    let mut gone = inputs.clone();
    gone.facts.controller_managers = all(&[]);
    gone.facts.proven = vec![proven("kcm-0_b", Basis::External)];
    assert!(competes(&gone), "the next one is listed, too");
    for (index, change) in takers.into_iter().enumerate() {
        let mut inputs = inputs.clone();
        change(&mut inputs.facts);
        inputs.facts.attestation = word(Phase::Migrate);
        assert!(matches!(decide(&inputs).action, LeaseAction::Pause(_)), "{index}");
        inputs.holding = false;
        free(&mut inputs);
        assert!(stands_by(&decide(&inputs)), "{index}");
    }
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
fn a_latch_of_another_object_is_not_erased() {
    let foreign = Latch {
        uid: "other".into(),
        superseded: true,
        ..latch(Phase::Migrate, true)
    };
    for phase in PHASES {
        let mut inputs = inputs(phase, Some(foreign.clone()));
        inputs.facts.controller_managers = all(&[&UNGUARDED]);
        inputs.facts.main = held("kcm-0_b");
        free(&mut inputs);
        let decision = decide(&inputs);
        assert!(stands_by(&decision), "{phase:?}");
        assert_eq!(decision.latch, LatchChange::Keep, "{phase:?}");
    }
}

#[test]
fn a_damaged_latch_counts_as_absent() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.latch = Stored::Damaged("yes".into());
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.main = held("kcm-0_b");
    free(&mut inputs);
    let decision = decide(&inputs);
    assert_eq!(code_of(&decision), code::STORING_EVIDENCE);
    assert!(matches!(decision.latch, LatchChange::Store(_)));
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
    for phase in PHASES {
        for (index, change) in unread.iter().enumerate() {
            let mut inputs = inputs(phase, Some(latch(Phase::Migrate, true)));
            free(&mut inputs);
            change(&mut inputs);
            let decision = decide(&inputs);
            assert_eq!(code_of(&decision), code::NOT_READ_YET, "{phase:?} {index}");
            assert_eq!(decision.latch, LatchChange::Keep);
            inputs.holding = true;
            let action = decide(&inputs).action;
            assert!(
                matches!(action, LeaseAction::Pause(_)),
                "it writes nothing: {phase:?} {index}"
            );
        }
    }
}

#[test]
fn an_old_manager_owns_the_controllers_only_where_its_leases_show_it() {
    type Change = fn(&mut Facts);
    let cases: [(Phase, Change, Option<&str>); 12] = [
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
            Phase::InTree,
            |f| {
                f.migration = nobodys();
                f.controller_managers = unreadable();
                f.proven = vec![proven("kcm-0_a", Basis::AttestedInMigrate)];
            },
            Some("no process renews the migration lease"),
        ),
        (
            Phase::Prepare,
            |f| {
                f.controller_managers = all(&[&Form::External { leader_migration: true }, &GUARDED]);
                f.controller_managers.seen[1].running = false;
            },
            Some("remove the flag"),
        ),
    ];
    for (index, (phase, change, problem)) in cases.into_iter().enumerate() {
        let mut inputs = inputs(phase, Some(latch(Phase::Prepare, false)));
        change(&mut inputs.facts);
        let decision = decide(&inputs);
        assert!(stands_by(&decision), "{index}");
        let expected = problem.map_or(code::OLD_MANAGER_OWNS, |_| code::EVIDENCE_MISSING);
        assert_eq!(code_of(&decision), expected, "{index}");
        let text = text(&decision);
        assert!(
            text.contains(problem.unwrap_or("owns the controllers")),
            "{index} {text}"
        );
    }
}

#[test]
fn evidence_is_checked_again_before_the_first_acquisition() {
    let own_file = Configuration::Unproven("it names its own file /own.yaml".into());
    for held_by_us in [false, true] {
        let mut migrating = inputs(Phase::Migrate, Some(latch(Phase::Migrate, held_by_us)));
        migrating.facts.controller_managers = all(&[&EXTERNAL, &GUARDED]);
        migrating.facts.main = held("kcm-0_b");
        free(&mut migrating);
        assert!(competes(&migrating));

        let mut other_file = migrating.clone();
        other_file.facts.controller_managers.seen[1].configuration = own_file.clone();
        assert_eq!(competes(&other_file), held_by_us);
        other_file.facts.attestation = word(Phase::Migrate);
        assert!(competes(&other_file), "the operator's word");

        let mut template = migrating.clone();
        let next = ControllerManager {
            host_names: Vec::new(),
            running: false,
            ..kcm(UNGUARDED)
        };
        template.facts.controller_managers.seen.push(next);
        assert_eq!(competes(&template), held_by_us, "its next Pod would act without M");

        let mut acquired = other_file.clone();
        acquired.facts.attestation = None;
        acquired.facts.migration = held(&acquired.identity);
        assert!(competes(&acquired), "it acquired the lease, and has no answer yet");
    }
}

#[test]
fn the_operators_word_is_for_a_leader_that_cannot_be_read() {
    for unknown in [seen(vec![]), unreadable()] {
        let mut inputs = inputs(Phase::Migrate, None);
        free(&mut inputs);
        inputs.facts.main = held("unread_b");
        inputs.facts.controller_managers = unknown;
        let decision = decide(&inputs);
        assert_eq!(code_of(&decision), code::EVIDENCE_MISSING);
        assert!(
            text(&decision).contains("spec.attestation.phase: Migrate"),
            "{}",
            text(&decision)
        );

        inputs.facts.attestation = word(Phase::Migrate);
        let attested = stored(&decide(&inputs)).clone();
        assert_eq!(attested.proven[0], proven("unread_b", Basis::AttestedInMigrate));
        inputs.latch = Stored::Latch(attested);
        assert!(competes(&inputs));

        inputs.facts.led_before = Some("unread_b".into());
        inputs.facts.proven = Vec::new();
        let decision = decide(&inputs);
        assert!(
            matches!(
                decision.action.why(),
                Some(Why::Leader(_, unproven)) if unproven.reason == UnprovenReason::LedBefore
            ),
            "{decision:?}"
        );
    }
}

#[test]
fn an_attestation_that_was_left_over_is_a_warning() {
    let mut inputs = inputs(Phase::Migrate, Some(latch(Phase::Migrate, false)));
    inputs.spec = Reading::Known(MigrationSpec {
        attestation: word(Phase::Migrate),
        seen_unattested: false,
        ..spec(Phase::Migrate)
    });
    assert_eq!(decide(&inputs).warnings, [Warning::AttestationLeftOver]);
    inputs.facts.attestation = word(Phase::Migrate);
    assert!(decide(&inputs).warnings.is_empty());
}

#[test]
fn node_ipam_on_both_sides_is_missing_evidence() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.main = held("kcm-0_b");
    inputs.facts.controller_managers.seen[0].node_ipam = Placement::Main;
    free(&mut inputs);
    assert_eq!(code_of(&decide(&inputs)), code::STORING_EVIDENCE);

    inputs.facts.own.node_ipam = Placement::Migrated;
    let decision = decide(&inputs);
    assert_eq!(code_of(&decision), code::EVIDENCE_MISSING);
    assert!(text(&decision).contains("kcm-0 runs node IPAM"), "{}", text(&decision));
}

#[test]
fn an_old_manager_that_holds_the_lease_for_nothing_is_named() {
    let mut inputs = inputs(Phase::Migrate, None);
    inputs.facts.controller_managers = all(&[&Form::External { leader_migration: true }]);
    let decision = decide(&inputs);
    assert_eq!(code_of(&decision), code::EVIDENCE_MISSING);
    let text = text(&decision);
    assert!(
        text.contains("kcm-0") && text.contains("--enable-leader-migration"),
        "{text}"
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
    assert!(facts.held_for_nothing().is_some(), "both leases have one holder");
    facts.controller_managers.seen.push(kcm(GUARDED));
    assert!(facts.held_for_nothing().is_none(), "it may be the other one");
    facts.controller_managers.seen.pop();
    facts.migration = held("other_a");
    assert!(facts.held_for_nothing().is_none(), "no kube-controller-manager");
}

#[test]
fn without_the_object_the_holder_keeps_the_latch_decides_and_none_means_wait() {
    let mut inputs = migrated(Phase::Migrate);
    inputs.spec = Reading::Unreadable("deleted".to_owned());
    let decision = decide(&inputs);
    assert_eq!(
        (decision.action, decision.phase),
        (LeaseAction::Compete, Some(Phase::Migrate))
    );
    inputs.holding = false;
    free(&mut inputs);
    assert!(competes(&inputs), "a restart follows the latch");

    let latched = inputs.latch.clone();
    inputs.latch = Stored::Absent;
    assert_eq!(code_of(&decide(&inputs)), code::MIGRATION_UNREADABLE);
    assert_eq!(decide(&inputs).latch, LatchChange::Keep);
    hold(&mut inputs);
    assert!(competes(&inputs), "the annotation was removed");

    // A guarded leader is no reason to release M: it acts only while it holds M.
    inputs.latch = latched;
    inputs.facts.controller_managers = all(&[&GUARDED]);
    inputs.facts.main = held("kcm-0_c");
    inputs.offer_due = true;
    assert!(competes(&inputs));
}

#[test]
fn a_jump_forward_is_safe() {
    let mut inputs = inputs(Phase::Complete, Some(latch(Phase::Prepare, false)));
    assert!(competes(&inputs), "the leader acts only with M");
    inputs.facts.controller_managers = all(&[&UNGUARDED]);
    inputs.facts.main = held("kcm-0_b");
    free(&mut inputs);
    assert!(stands_by(&decide(&inputs)));
}

#[test]
fn a_step_back_offers_the_lease_to_a_guarded_leader_when_an_offer_is_due() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Migrate, true)));
    hold(&mut inputs);
    inputs.facts.main = held("kcm-0_b");
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "not due");
    let next = stored(&decision);
    assert_eq!((next.phase, next.held_by.as_deref()), (Phase::Prepare, Some("us")));

    inputs.offer_due = true;
    assert_eq!(decide(&inputs).action, LeaseAction::Release(Why::Offering(YIELD)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    assert!(competes(&inputs), "it would be in vain");
    inputs.facts.controller_managers = all(&[]);
    inputs.facts.proven = vec![proven("kcm-0_b", Basis::External)];
    assert!(competes(&inputs), "its Pod is gone, and its lease has not expired");
    inputs.facts.main = nobodys();
    inputs.facts.controller_managers = all(&[&GUARDED]);
    assert!(competes(&inputs), "nobody could acquire it");
}

#[test]
fn in_a_step_back_a_leader_that_cannot_be_read_gets_the_lease_without_an_alarm() {
    let mut inputs = inputs(Phase::Prepare, Some(latch(Phase::Prepare, true)));
    hold(&mut inputs);
    inputs.facts.main = held("unread_b");
    inputs.facts.controller_managers = unreadable();
    assert!(matches!(decide(&inputs).action, LeaseAction::Release(Why::Leader(..))));
    for wrong in [all(&[&GUARDED]), all(&[&UNGUARDED])] {
        inputs.facts.main = held(if wrong.seen[0].is_unguarded() {
            "kcm-0_b"
        } else {
            "hidden_b"
        });
        inputs.facts.controller_managers = wrong;
        assert!(is_alarm(&inputs), "{:?}", inputs.facts.controller_managers);
    }
}

#[test]
fn a_step_back_of_a_holder_that_no_latch_names_is_one() {
    for held in [None, Some("our predecessor")] {
        let recorded = Latch {
            held_by: held.map(str::to_owned),
            ..latch(Phase::Migrate, false)
        };
        let mut inputs = migrated(Phase::Prepare);
        inputs.latch = Stored::Latch(recorded);
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
    let guarded = all(&[&GUARDED, &EXTERNAL]);
    for (old_managers, followed) in [(external, false), (guarded, true), (unreadable(), true)] {
        for holding in [true, false] {
            let mut inputs = inputs(Phase::InTree, Some(latch(Phase::Prepare, true)));
            inputs.facts.controller_managers = old_managers.clone();
            inputs.facts.main = held("kcm-0_b");
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
                assert!(decision.warnings.contains(&Warning::InTreeNotFollowed));
            }
        }
    }
}

#[test]
fn in_tree_is_not_followed_beside_a_leader_that_was_attested_external() {
    let mut inputs = migrated(Phase::InTree);
    inputs.facts.controller_managers = unreadable();
    inputs.facts.proven = vec![proven("kcm-0_b", Basis::AttestedInMigrate)];
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete, "it owns nothing");
    assert!(decision.warnings.contains(&Warning::InTreeNotFollowed));
    inputs.facts.main = held("unread_c");
    assert!(
        matches!(decide(&inputs).action, LeaseAction::Release(_)),
        "a new leader"
    );
}

#[test]
fn in_tree_voids_the_latch_when_the_old_manager_holds_the_lease() {
    let mut inputs = inputs(Phase::InTree, Some(latch(Phase::Prepare, true)));
    inputs.facts.controller_managers = all(&[&EXTERNAL]);
    inputs.facts.migration = held("kcm-0_a");
    assert_eq!(decide(&inputs).latch, LatchChange::Remove);
}

#[test]
fn a_holder_whose_latch_was_deleted_stores_a_new_one() {
    for phase in [Phase::Prepare, Phase::Migrate, Phase::Complete] {
        let mut inputs = migrated(phase);
        inputs.latch = Stored::Absent;
        let decision = decide(&inputs);
        assert_eq!(decision.action, LeaseAction::Compete);
        let latch = stored(&decision);
        assert_eq!((latch.phase, latch.held_by.as_deref()), (phase, Some("us")));
    }
}

#[test]
fn a_recreated_object_keeps_the_latch_of_the_holder() {
    let mut inputs = migrated(Phase::Migrate);
    inputs.spec = Reading::Known(MigrationSpec {
        uid: "new".into(),
        ..spec(Phase::Migrate)
    });
    let decision = decide(&inputs);
    assert_eq!(decision.action, LeaseAction::Compete);
    assert_eq!(stored(&decision).uid, "new");
}

#[test]
fn the_phase_of_the_latch_stays_while_the_object_cannot_be_read() {
    let mut inputs = migrated(Phase::Migrate);
    inputs.spec = Reading::Unreadable("forbidden".into());
    inputs.facts.main = held("kcm-0_c");
    let next = stored(&decide(&inputs)).clone();
    assert_eq!(next.phase, Phase::Migrate);
    assert_eq!(next.proven[0].identity, "kcm-0_c");
}

#[test]
fn each_reason_has_a_code_of_its_own_and_no_empty_text() {
    let unproven = Unproven {
        identity: "a_1".into(),
        reason: UnprovenReason::NotListed(Vec::new()),
    };
    let all = [
        Why::NotReadYet(Source::Migration),
        Why::MigrationUnreadable,
        Why::OldManagerOwns(Phase::InTree),
        Why::NoOwner(Phase::Prepare),
        Why::EvidenceMissing(Phase::Prepare, vec![Missing::MainLeaseIdle]),
        Why::StoringEvidence,
        Why::Offering(YIELD),
        Why::LeaseInUse {
            holder: None,
            for_nothing: None,
            failure: None,
        },
        Why::Listing("a_1".into()),
        Why::Leader(None, unproven),
        Why::MainLeaseNotHeld(None, crate::why::Taker::MainLeaseUnwatched),
        Why::Unlocked("Pod a/b".into(), "--leader-elect=false".into()),
    ];
    let codes: std::collections::BTreeSet<&str> = all.iter().map(Why::code).collect();
    assert_eq!(codes.len(), all.len());
    assert!(all.iter().all(|why| why.message().len() > 30));
}
