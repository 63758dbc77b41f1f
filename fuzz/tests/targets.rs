//! Every target with a few inputs, the kept ones among them; and the engine itself, which has to find what is broken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::time::Duration;

use outrigger_fuzz::engine::{self, Budget, Report};
use outrigger_fuzz::random::Random;
use outrigger_fuzz::targets::{self, admission};
use outrigger_fuzz::{TARGETS, Target, files, mutate};
use outrigger_webhook::decide::kinds;

const FEW: Budget = Budget {
    time: Duration::from_secs(20),
    executions: 400,
};

fn keeps_its_promises(name: &str) {
    let target = targets::find(name).unwrap();
    let mut seeds = files::kept(target);
    let kept = seeds.len();
    seeds.extend((target.seeds)());
    // All that is kept runs first, whatever the time.
    for input in &seeds[..kept] {
        assert_eq!(
            engine::execute(target, input).failure,
            None,
            "{}",
            String::from_utf8_lossy(input)
        );
    }
    let few = Budget {
        executions: FEW.executions + u64::try_from(seeds.len()).unwrap(),
        ..FEW
    };
    let report = engine::run(target, seeds, &mut Random::new(1), few, None);
    assert!(report.executions > 10 && report.features > 3, "{report:?}");
    if let Some(failure) = report.failure {
        panic!("{}\n{}", failure.message, String::from_utf8_lossy(&failure.input));
    }
}

#[test]
fn admission_keeps_its_promises() {
    keeps_its_promises("admission");
}

#[test]
fn command_lines_keep_their_promises() {
    keeps_its_promises("command-line");
}

#[test]
fn yaml_texts_keep_their_promises() {
    keeps_its_promises("yaml-text");
}

#[test]
fn cloud_configurations_keep_their_promises() {
    keeps_its_promises("cloud-config");
}

#[test]
fn leader_migration_configurations_keep_their_promises() {
    keeps_its_promises("leader-migration");
}

#[test]
fn certificates_keep_their_promises() {
    keeps_its_promises("pem");
}

#[test]
fn words_keep_their_promises() {
    keeps_its_promises("words");
}

#[test]
fn there_is_a_test_for_every_target() {
    let source = include_str!("targets.rs");
    for target in TARGETS {
        assert!(
            source.contains(&format!("keeps_its_promises(\"{}\")", target.name)),
            "{}",
            target.name
        );
    }
}

#[test]
fn every_kind_of_the_webhook_has_a_review_to_begin_with() {
    let seeds = admission::seeds();
    for kind in kinds() {
        let named = format!("\"group\":\"{}\",\"kind\":\"{}\"", kind.group, kind.kind);
        let has = |seed: &Vec<u8>| String::from_utf8_lossy(seed).contains(&named);
        assert!(seeds.iter().any(has), "{named}");
    }
}

/// Breaks its promise for a word that no seed has.
fn broken(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    assert!(!(text.contains("aws") && text.contains("zone")), "planted");
}

const BROKEN: Target = Target {
    name: "broken",
    run: broken,
    mutate: |random, data, other| mutate::text::mutate(random, data, other, &["zone", "aws"]),
    seeds: || vec![b"a long text about nothing".to_vec()],
    weight: 1,
};

fn run(target: &Target, seed: u64) -> Report {
    engine::run(target, (target.seeds)(), &mut Random::new(seed), FEW, None)
}

#[test]
fn what_is_broken_is_found_made_small_and_found_again_by_its_file() {
    let failure = run(&BROKEN, 3).failure.expect("400 inputs are enough");
    assert!(failure.message.contains("planted"), "{}", failure.message);
    assert_eq!(failure.input.len(), "awszone".len(), "{failure:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = files::write_failure(folder.path(), &BROKEN, &failure.input).unwrap();
    let again = engine::execute(&BROKEN, &std::fs::read(file).unwrap());
    assert!(again.failure.is_some_and(|message| message.contains("planted")));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let inputs = |seed| run(&BROKEN, seed).executions;
    assert_eq!(inputs(3), inputs(3));
    assert_ne!((inputs(3), inputs(5)), (inputs(4), inputs(6)));
}

#[test]
fn an_input_that_takes_too_long_is_a_failure() {
    fn slow(_: &[u8]) {
        let end = engine::processor_time() + engine::MAX_TIME + Duration::from_millis(200);
        while engine::processor_time() < end {
            std::hint::black_box((0..100_000_u64).sum::<u64>());
        }
    }
    let target = Target { run: slow, ..BROKEN };
    let failure = engine::execute(&target, b"")
        .failure
        .expect("it takes more than the limit");
    assert!(failure.starts_with("too slow"), "{failure}");
}

#[test]
fn an_input_that_ended_the_process_is_read_from_its_file() {
    let file = [&3_u64.to_le_bytes()[..], b"abcrest of a longer one"].concat();
    assert_eq!(engine::current(&file), Some(&b"abc"[..]));
    assert_eq!(engine::current(b"short"), None);
}
