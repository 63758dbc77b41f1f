//! A model check of the gate: every order of events of two managers, two kube-controller-managers with client-go's
//! elector, three leases, the migration object, an operator and faults, up to a bound. The decisions are those of the
//! real [`gate::decide`].
//!
//! One tick is 5 s: a lease lasts three ticks, a permit two, [`gate::YIELD`] two. A running holder renews within each
//! tick. A manager sees the leases and the command lines at once; how old they may be is for unit tests.

#![allow(clippy::expect_used, clippy::panic, reason = "test helpers")]

mod model_support;

use model_support::{Event, Explored, Form, Phase, Rules, State, explore, explore_until};

/// The states from which no owner is reached without an event of the operator or a fault, and why.
fn stuck(explored: &Explored) -> Vec<(&State, &'static str)> {
    let reached = explored.reaching(State::has_one_owner, Event::is_progress);
    let states = explored.states.iter().enumerate();
    states
        .filter(|(index, _)| !reached[*index])
        .map(|(_, state)| (state, state.waiting(&explored.rules)))
        .collect()
}

/// The command lines are all of one form, and the phase is the one that they are for.
fn is_consistent(state: &State) -> bool {
    let forms: Vec<Form> = state.running_forms();
    let all = |form| !forms.is_empty() && forms.iter().all(|other| *other == form);
    state.readable
        && state.visible
        && match state.phase {
            Phase::InTree => all(Form::Original),
            Phase::Prepare => all(Form::Guarded),
            Phase::Migrate | Phase::Complete => all(Form::External),
        }
}

#[test]
fn every_order_of_events_has_one_owner_or_names_what_is_needed() {
    let explored = explore(Rules::default());
    println!(
        "{} states, {} transitions",
        explored.states.len(),
        explored.transitions()
    );
    assert!(explored.states.len() > 50_000, "the bound leaves nothing to explore");

    never_two_owners(&explored);
    an_owner_or_a_message(&explored);
    the_old_manager_gets_the_lease_in_prepare(&explored);
    if let Some(state) = explored.acquired_without_offer() {
        panic!(
            "the old manager that was rolled back is not offered the lease:\n{}",
            explored.path_to(state)
        );
    }
    never_released_without_operator(&explored);
    never_released_without_operator(&explore(Rules {
        faults: 3,
        events: 3,
        ..Rules::default()
    }));
    if let Some(state) = explored.find_edge(State::released_in_vain) {
        panic!(
            "the lease is offered, and the holder of K does not acquire it:\n{}",
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
    let explored = explore(Rules {
        late: true,
        events: 3,
        ..Rules::default()
    });
    never_two_owners(&explored);
    an_owner_or_a_message(&explored);
    the_old_manager_gets_the_lease_in_prepare(&explored);
    if let Some(state) = explored.acquired_without_offer() {
        panic!(
            "the lease is acquired again before the old manager could acquire it:\n{}",
            explored.path_to(state)
        );
    }
}

fn never_two_owners(explored: &Explored) {
    if let Some(state) = explored.find(State::has_two_owners) {
        panic!("two owners:\n{}", explored.path_to(state));
    }
}

fn never_released_without_operator(explored: &Explored) {
    if let Some(state) = explored.find_edge(State::released_without_operator) {
        panic!(
            "the owner releases the lease, and no operator went back:\n{}",
            explored.path_to(state)
        );
    }
}

fn an_owner_or_a_message(explored: &Explored) {
    let owners = explored.states.iter().filter(|state| state.has_one_owner()).count();
    assert!(
        owners * 10 > explored.states.len(),
        "few states have an owner: {owners}"
    );

    let actionable = [
        "EvidenceMissing",
        "UnguardedControllerManager",
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
    let two_owners = |rules| {
        explore_until(rules, State::has_two_owners)
            .find(State::has_two_owners)
            .is_some()
    };
    let ownerless = |rules| {
        let explored = explore(rules);
        stuck(&explored).into_iter().any(|(state, _)| is_consistent(state))
    };

    let default = Rules::default();
    assert!(
        two_owners(Rules {
            exact_names: true,
            ..default
        }),
        "upstream's exact names: an old manager runs under its main lease what the list does not name"
    );
    assert!(
        two_owners(Rules {
            deleted_is_free: true,
            ..default
        }),
        "a deleted lease is acquired at once"
    );
    assert!(
        two_owners(Rules {
            phase_is_evidence: true,
            ..default
        }),
        "the phase counts as evidence"
    );
    assert!(
        two_owners(Rules {
            stale_latch: true,
            events: 5,
            ..default
        }),
        "a latch from before unobserved changes is followed"
    );
    assert!(
        two_owners(Rules {
            no_alarm: true,
            ..default
        }),
        "an unguarded old manager is no alarm"
    );
    assert!(
        two_owners(Rules {
            unread_is_unreadable: true,
            late: true,
            ..default
        }),
        "what was not read yet counts as not readable"
    );
    assert!(
        ownerless(Rules {
            evidence_only: true,
            ..default
        }),
        "without a latch, external old managers are no evidence"
    );
}

/// The same for rules that prevent needless releases, early acquisitions and a phase without an owner.
#[test]
fn each_rule_about_offers_that_is_left_out_is_found() {
    let default = Rules::default();
    let no_offer = explore(Rules {
        offered_to_all: true,
        events: 3,
        ..default
    });
    assert!(
        no_offer.acquired_without_offer().is_some(),
        "without a readable object any holder of K counts as the recorded one"
    );
    let unreadable = explore(Rules {
        unreadable_at_once: true,
        faults: 3,
        events: 3,
        ..default
    });
    assert!(
        unreadable.find_edge(State::released_without_operator).is_some(),
        "each error of the object's watch is a reason to offer the lease"
    );
    let no_latch = explore(Rules {
        no_latch: true,
        events: 3,
        ..default
    });
    assert!(
        no_latch.crash_without_owner().is_some(),
        "the evidence counts while it lasts, and is not recorded"
    );
    let early = explore(Rules {
        yield_before_expiry: true,
        late: true,
        events: 3,
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
