//! The processor time of a decision about the worst object of each kind, with the reading of its JSON.
//!
//! Fails if one takes longer than a decision may. The steps are the same on every machine, the time of a step is not:
//! the last column shows whether a step stands for too much work.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints and fails by panicking"
)]

#[path = "../tests/worst_objects/mod.rs"]
mod worst_objects;

use std::time::{Duration, Instant};

use outrigger_decide::{Decision, Outcome};
use outrigger_shared::migration::{Phase, Profile};
use serde_json::Value;
use worst_objects::{WorstObject, decided, worst_objects};

/// Processor time of one decision.
const LIMIT: Duration = Duration::from_millis(5);

/// The shortest time of several runs: other processes only add time.
const RUNS: usize = 15;

fn shortest(text: &str, profile: Profile, phase: Phase) -> Duration {
    let once = |_| {
        let begin = Instant::now();
        let decision = decided(text, profile, phase);
        let time = begin.elapsed();
        drop(decision);
        time
    };
    (0..RUNS).map(once).min().unwrap()
}

/// The object as it is stored after a decision.
fn stored(object: &WorstObject, decision: &Decision) -> Value {
    let mut value = object.value.clone();
    json_patch::patch(&mut value, &decision.patch).unwrap();
    value
}

fn main() {
    println!("| object | KiB | phase | decision | steps | ms | ns per step |\n|---|---|---|---|---|---|---|");
    let mut slow = Vec::new();
    for object in worst_objects() {
        let (first, _) = decided(&object.value.to_string(), object.profile, Phase::Prepare);
        // A changed object is first restored, and then changed again.
        let again = (first.outcome == Outcome::Changed).then(|| stored(&object, &first).to_string());
        let created = object.value.to_string();
        let decisions = [
            (&object.name, Some(&created), Phase::Prepare),
            (&object.name, Some(&created), Phase::Migrate),
            (
                &format!("{}, changed before", object.name),
                again.as_ref(),
                Phase::Migrate,
            ),
        ];
        for (name, text, phase) in decisions {
            let Some(text) = text else { continue };
            let (decision, steps) = decided(text, object.profile, phase);
            let time = shortest(text, object.profile, phase);

            let outcome = decision
                .shortage
                .map_or(decision.outcome.as_str(), |_| "over the budget");
            println!(
                "| {name} | {} | {phase} | {outcome} | {steps} | {:.2} | {:.1} |",
                text.len() / 1024,
                time.as_secs_f64() * 1e3,
                time.as_secs_f64() * 1e9 / steps.max(1) as f64,
            );
            if time > LIMIT {
                slow.push(format!("{name}, {phase}: {time:?}"));
            }
        }
    }

    assert!(slow.is_empty(), "longer than {LIMIT:?}: {slow:#?}");
}
