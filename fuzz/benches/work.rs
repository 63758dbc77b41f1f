//! Searches for reviews that take long to decide: begins with all seeds and the worst objects, keeps those that took
//! longest, and changes them at random. `SECONDS=600` searches longer, `SEED=2` on another way. `FILE=slowest.json`
//! measures one review.
//!
//! Fails if one takes longer than a decision may. It is written to `target/fuzz/slowest.json` then.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints and fails by panicking"
)]

#[path = "../../webhook/decide/tests/worst_objects/mod.rs"]
mod worst_objects;

use std::time::{Duration, Instant};

use fastrand::Rng;
use outrigger_fuzz::targets::admission;
use outrigger_fuzz::{TARGETS, Target, all_seeds, quick, repository};
use serde_json::{Value, json};
use worst_objects::{WorstObject, worst_objects};

const LIMIT: Duration = Duration::from_millis(5);
/// Reviews that are changed further.
const KEPT: usize = 60;
/// The shortest time of several runs counts: other processes only add time.
const RUNS: usize = 15;

struct Found {
    time: Duration,
    steps: u64,
    input: Vec<u8>,
}

impl Found {
    /// Runs an input once, and more often if it would be among the slowest.
    fn of(input: Vec<u8>, worth: Duration) -> Self {
        let once = || {
            let begin = Instant::now();
            let steps = admission::work(&input);
            (begin.elapsed(), steps)
        };
        let (mut time, steps) = once();
        for _ in 1..RUNS {
            if time < worth {
                break;
            }
            time = time.min(once().0);
        }

        Self { time, steps, input }
    }
}

/// The state of the webhook as the first line, then the body.
fn input_of(object: &WorstObject) -> Vec<u8> {
    let value = &object.value;
    let (group, version) = value["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = json!({"group": group, "version": version, "kind": value["kind"]});
    let request = json!({"uid": "u", "operation": "CREATE", "name": value["metadata"]["name"],
        "namespace": value["metadata"]["namespace"], "kind": kind, "resource": kind, "object": value});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let everything = json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
    let spec = json!({"clusterID": "prod", "phase": "Migrate",
        "targets": [{"profile": object.profile, "objectSelector": everything}]});
    let state: Value = json!({"migrations": {"prod": {"spec": spec, "prepared": true}}});
    format!("{state}\n{body}").into_bytes()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn search(target: &Target, seconds: u64, rng: &mut Rng) -> (Vec<Found>, u64) {
    let worst = worst_objects().iter().map(input_of).collect::<Vec<_>>();
    let seeds = [all_seeds(target), worst].concat();
    let mut kept: Vec<Found> = Vec::new();
    let run = |input: Vec<u8>, kept: &mut Vec<Found>| {
        let worth = kept.get(KEPT - 1).map_or(Duration::ZERO, |last| last.time);
        let found = Found::of(input, worth);
        if found.time > worth {
            let place = kept.partition_point(|other| other.time >= found.time);
            kept.insert(place, found);
            kept.truncate(KEPT);
        }
    };
    for seed in &seeds {
        run(seed.clone(), &mut kept);
    }

    let (begin, mut inputs) = (Instant::now(), seeds.len() as u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        // Half of them begin with a slow one, the others with any.
        let inputs_kept: Vec<Vec<u8>> = vec![kept[rng.usize(..kept.len())].input.clone()];
        let from = if rng.bool() { &inputs_kept } else { &seeds };
        run(quick::changed(target, from, rng), &mut kept);
        inputs += 1;
    }

    (kept, inputs)
}

fn main() {
    let (seconds, seed) = (setting("SECONDS", 60), setting("SEED", 1));
    if let Ok(file) = std::env::var("FILE") {
        let found = Found::of(std::fs::read(file).unwrap(), Duration::ZERO);
        println!("{} steps, {:?}", found.steps, found.time);
        return;
    }

    let target = TARGETS.iter().find(|target| target.name == "admission").unwrap();
    let (kept, inputs) = search(target, seconds, &mut Rng::with_seed(seed));

    println!("{inputs} reviews in {seconds} s (SEED={seed}); the slowest:\n\n| KiB | steps | ms |\n|---|---|---|");
    for found in kept.iter().take(10) {
        let ms = found.time.as_secs_f64() * 1e3;
        println!("| {} | {} | {ms:.2} |", found.input.len() / 1024, found.steps);
    }

    let slowest = &kept[0];
    if slowest.time > LIMIT {
        let file = repository().join("target/fuzz/slowest.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &slowest.input).unwrap();
        panic!("{:?}, longer than {LIMIT:?}: {}", slowest.time, file.display());
    }
}
