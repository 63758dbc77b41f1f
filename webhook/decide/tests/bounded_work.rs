//! Objects that need much work: each is decided within the budget of a decision, or refused with the reason. Work is
//! counted in steps, so the results are the same on every machine; the benchmark measures the time of a step.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod worst_objects;

use outrigger_decide::{Decision, MAX_WORK, Outcome, Shortage};
use outrigger_shared::migration::Phase;
use worst_objects::{
    WorstObject, aliases_in_values, arguments, charts_in_a_manifest, nested_variables, sections_with_lists,
    worst_objects,
};

fn decided(object: &WorstObject, phase: Phase) -> (Decision, u64) {
    worst_objects::decided(&object.value.to_string(), object.profile, phase)
}

#[track_caller]
fn is_refused_for_work(object: &WorstObject) {
    let (decision, _) = decided(object, Phase::Migrate);
    assert_eq!(decision.outcome, Outcome::Refused, "{}", object.name);
    assert_eq!(
        decision.shortage,
        Some(Shortage::Work),
        "{}: {:?}",
        object.name,
        decision.reasons
    );
    assert!(decision.patch.is_empty());
}

#[track_caller]
fn is_changed(object: &WorstObject) -> u64 {
    let (decision, steps) = decided(object, Phase::Prepare);
    assert_eq!(
        decision.outcome,
        Outcome::Changed,
        "{}: {:?}",
        object.name,
        decision.reasons
    );
    steps
}

#[test]
fn aliases_that_stand_for_millions_of_values_are_refused_with_the_reason() {
    let (decision, steps) = decided(&aliases_in_values(18), Phase::Prepare);
    assert_eq!((decision.outcome, decision.shortage), (Outcome::Refused, None));
    assert!(decision.warnings[0].contains("aliases"), "{:?}", decision.warnings);
    assert!(steps < MAX_WORK / 2, "{steps}");
    is_changed(&aliases_in_values(4));
}

/// Each chart has an edit of its own.
#[test]
fn the_work_for_charts_in_a_manifest_grows_with_their_number_and_not_with_its_square() {
    let (few, many) = (
        is_changed(&charts_in_a_manifest(2)),
        is_changed(&charts_in_a_manifest(8)),
    );
    assert!(many < 5 * few, "{few} steps for 2 charts, {many} for 8");
    is_refused_for_work(&charts_in_a_manifest(1100));
}

#[test]
fn the_work_for_sections_with_lists_grows_with_their_number_and_not_with_its_square() {
    let (few, many) = (
        is_changed(&sections_with_lists(5)),
        is_changed(&sections_with_lists(20)),
    );
    assert!(many < 5 * few, "{few} steps for 5 sections, {many} for 20");
    is_refused_for_work(&sections_with_lists(800));
}

#[test]
fn real_sizes_are_far_below_the_budget() {
    for object in [
        arguments(60),
        aliases_in_values(3),
        sections_with_lists(10),
        charts_in_a_manifest(2),
    ] {
        let steps = is_changed(&object);
        assert!(steps < MAX_WORK / 2, "{}: {steps}", object.name);
    }
}

#[test]
fn variables_of_variables_are_not_expanded_for_ever() {
    let (decision, _) = decided(&nested_variables(26), Phase::Prepare);
    assert_ne!(decision.outcome, Outcome::Changed);
}

/// Every kind of large object ends; a refusal says the reason.
#[test]
fn the_worst_object_of_each_kind_is_decided_or_refused_with_a_reason() {
    for object in worst_objects() {
        for phase in [Phase::Prepare, Phase::Migrate, Phase::Complete] {
            let (decision, steps) = decided(&object, phase);
            assert!(steps <= MAX_WORK);
            println!(
                "{}: {phase}: {:?} {:?} {steps}",
                object.name, decision.outcome, decision.shortage
            );
            let is_read = decision.shortage != Some(Shortage::Work) || steps < MAX_WORK;
            assert!(is_read || decision.outcome == Outcome::Refused, "{}", object.name);
        }
    }
}
