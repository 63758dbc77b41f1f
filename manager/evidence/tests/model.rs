//! A model check of the gate: every order of events of two managers, two or three kube-controller-managers with client-go's
//! elector, three leases, the migration object, an operator and faults, up to a bound. The decisions are those of the
//! real [`gate::decide`].
//!
//! One tick is 5 s: a lease lasts three ticks, a permit and the fence two, [`gate::YIELD`] two. A running holder renews
//! within each tick. A process that lost a lease acts until its own renew deadline. A manager sees the leases at once, or
//! later ([`Rules::lag`]), and lists the command lines after that.

#![allow(clippy::expect_used, clippy::panic, reason = "test helpers")]

mod model_support;

use model_support::{Event, Explored, Form, Phase, Rules, State, explore, explore_until};

/// The states from which no owner is reached without an event of the operator or a fault, and why.
fn stuck(explored: &Explored) -> Vec<(&State, &'static str)> {
    let reached = explored.reaching_an_owner();
    let states = explored.states.iter().enumerate();
    states
        .filter(|(index, _)| !reached[*index])
        .map(|(_, state)| (state, state.waiting(&explored.rules)))
        .collect()
}

/// The command lines can be read and are all of one form, and the phase is the one that they are for.
fn is_consistent(state: &State) -> bool {
    let forms: Vec<Form> = state.running_forms();
    let all = |form| !forms.is_empty() && forms.iter().all(|other| *other == form);
    state.readable
        && state.visible
        && match state.phase {
            Phase::InTree => all(Form::Original),
            Phase::Prepare => all(Form::Guarded),
            // In the middle of a roll each of them acts only with M.
            Phase::Migrate | Phase::Complete => !forms.is_empty() && !forms.contains(&Form::Original),
        }
}

fn check(explored: &Explored) {
    assert!(explored.states.len() > 500_000, "the bound leaves nothing to explore");
    never_two_owners(explored);
    an_owner_or_a_message(explored);
    the_old_manager_gets_the_lease_in_prepare(explored);
    if let Some(state) = explored.acquired_without_offer() {
        panic!(
            "the lease is acquired again before the old manager could acquire it:\n{}",
            explored.path_to(state)
        );
    }
}

#[test]
fn every_order_of_events_has_one_owner_or_names_what_is_needed() {
    let explored = explore(Rules::default());
    check(&explored);
    if let Some(state) = explored.find_edge(State::released_in_vain) {
        panic!(
            "the lease is released, and the holder of K does not acquire it:\n{}",
            explored.path_to(state)
        );
    }
    if let Some(state) = explored.crash_without_owner() {
        panic!("a crash of the owner ends the ownership:\n{}", explored.path_to(state));
    }
    if let Some(state) = explored.phase_without_owner() {
        panic!(
            "a change of the phase ends the only ownership:\n{}",
            explored.path_to(state)
        );
    }
}

/// The same where a manager that starts has read nothing yet, and where writes have no answer.
#[test]
fn late_reads_and_late_answers_cost_no_owner() {
    check(&explore(Rules {
        late: true,
        ..Rules::default()
    }));
}

/// The same where a manager sees a new holder of K late, of which it knows that it may come.
#[test]
fn a_late_sight_of_a_possible_taker_gives_no_second_owner() {
    let explored = explore(Rules {
        lag: true,
        ..Rules::default()
    });
    never_two_owners(&explored);
    an_owner_or_a_message(&explored);
}

/// The same with three kube-controller-managers, and with one that no Pod shows.
#[test]
fn three_kube_controller_managers_and_a_hidden_one_give_one_owner() {
    check(&explore(Rules {
        olds: 3,
        ..Rules::default()
    }));
    let hidden = explore(Rules {
        hidden: true,
        ..Rules::default()
    });
    never_two_owners(&hidden);
    let acts = |state: &State, rules: &Rules| state.manager_acts(rules);
    assert!(hidden.find(acts).is_some(), "a standby that nobody shows stops nobody");
}

fn never_two_owners(explored: &Explored) {
    if let Some(state) = explored.find(State::has_two_owners) {
        panic!("two owners:\n{}", explored.path_to(state));
    }
}

fn an_owner_or_a_message(explored: &Explored) {
    let rules = &explored.rules;
    let owners = explored
        .states
        .iter()
        .filter(|state| state.has_one_owner(rules))
        .count();
    assert!(
        owners * 10 > explored.states.len(),
        "few states have an owner: {owners}"
    );

    let actionable = [
        "EvidenceMissing",
        "UnguardedControllerManager",
        "LeaderNotProven",
        "MainLeaseNotHeld",
        "MigrationUnreadable",
        "OldManagerOwns",
        "NoOwner",
        "LeaseInUse",
    ];
    for (state, why) in stuck(explored) {
        let path = || explored.path_to_state(state);
        assert!(
            !is_consistent(state),
            "nobody owns the controllers, and no operator is needed ({why}):\n{}",
            path()
        );
        assert!(actionable.contains(&why), "{why:?}:\n{}", path());
        assert!(
            why != "OldManagerOwns" || !state.all_seen_external(),
            "no old manager owns anything:\n{}",
            path()
        );
    }
}

/// A leading old manager with leader migration can acquire the lease in phase Prepare.
fn the_old_manager_gets_the_lease_in_prepare(explored: &Explored) {
    let reached = explored.reaching(State::old_manager_owns_by_lease, Event::is_progress);
    for (index, state) in explored.states.iter().enumerate() {
        let expected = is_consistent(state) && state.phase == Phase::Prepare;
        assert!(
            !expected || reached[index],
            "the old manager never gets the lease:\n{}",
            explored.path_to(index)
        );
    }
}

/// Each rule is needed: without it the check is red.
#[test]
fn each_rule_that_is_left_out_is_found() {
    let default = Rules::default();
    let rules = [
        (
            "upstream's exact names: an old manager runs under its main lease what the list does not name",
            Rules {
                exact_names: true,
                ..default
            },
        ),
        (
            "a deleted lease is acquired at once",
            Rules {
                deleted_is_free: true,
                ..default
            },
        ),
        (
            "the phase counts as evidence",
            Rules {
                phase_is_evidence: true,
                ..default
            },
        ),
        (
            "any holder of K counts as proven",
            Rules {
                any_leader: true,
                ..default
            },
        ),
        (
            "the permit ends with M alone",
            Rules {
                no_fence: true,
                lag: true,
                ..default
            },
        ),
        (
            "a holder of K that lost it early counts as ended",
            Rules {
                no_former: true,
                ..default
            },
        ),
        (
            "an attestation of an earlier run counts",
            Rules {
                left_over_counts: true,
                ..default
            },
        ),
        (
            "an attestation counts for a holder that led before the phase",
            Rules {
                led_before_counts: true,
                events: 4,
                ..default
            },
        ),
    ];
    for (text, rules) in rules {
        let explored = explore_until(rules, State::has_two_owners);
        assert!(explored.find(State::has_two_owners).is_some(), "not found: {text}");
    }
}

/// The same for rules that prevent needless releases, early acquisitions and a phase without an owner.
#[test]
fn each_rule_about_offers_that_is_left_out_is_found() {
    let default = Rules::default();
    let no_latch = explore(Rules {
        no_latch: true,
        ..default
    });
    assert!(
        no_latch.crash_without_owner().is_some(),
        "the evidence counts while it lasts, and is not recorded"
    );
    let early = explore(Rules {
        yield_before_expiry: true,
        late: true,
        ..default
    });
    assert!(
        early.acquired_without_offer().is_some(),
        "M counts as offered before it expires"
    );
    let at_once = explore(Rules {
        in_tree_at_once: true,
        events: 2,
        ..default
    });
    assert!(
        at_once.phase_without_owner().is_some(),
        "InTree is followed although no old manager would own anything"
    );
}
