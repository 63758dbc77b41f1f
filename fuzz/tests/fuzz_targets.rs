//! Every target with its corpus, its seeds and random changes of them.
//!
//! `FUZZ_SEED` repeats a run; `FUZZ_SECONDS` makes each target run for so long (`make fuzz-quick`).
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::panic::catch_unwind;
use std::time::Duration;

use fastrand::Rng;
use outrigger_decide::kinds;
use outrigger_fuzz::quick::{self, Limit};
use outrigger_fuzz::targets::admission;
use outrigger_fuzz::{TARGETS, Target, all_seeds, find, repository};

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value.map(|value| value.parse().unwrap())
}

fn fuzz(name: &str) {
    let target = find(name).unwrap();
    let limit =
        variable("FUZZ_SECONDS").map_or(Limit::Inputs(400), |seconds| Limit::Time(Duration::from_secs(seconds)));
    let inputs = quick::run(
        target,
        variable("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..)),
        limit,
    );
    eprintln!("{name}: {inputs} inputs");
}

macro_rules! fuzz_tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_libfuzzer_program() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            for name in names {
                let program = repository().join(format!("fuzz/cargo-fuzz/fuzz_targets/{name}.rs"));
                assert!(program.is_file(), "{}", program.display());
            }
        }
    };
}

fuzz_tests!(admission command_line yaml_text cloud_config leader_migration pem short_text);

#[test]
fn every_kind_of_the_webhook_has_a_seed() {
    let seeds = admission::seeds();
    for kind in kinds() {
        let named = format!("\"group\":\"{}\",\"kind\":\"{}\"", kind.group, kind.kind);
        let has = |seed: &Vec<u8>| String::from_utf8_lossy(seed).contains(&named);
        assert!(seeds.iter().any(has), "{named}");
    }
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    for target in TARGETS {
        let seeds = all_seeds(target);
        let inputs = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..20)
                .map(|_| quick::changed(target, &seeds, &mut rng))
                .collect::<Vec<_>>()
        };
        assert!(inputs(3) == inputs(3), "{}", target.name);
        assert!(inputs(3) != inputs(4), "{}", target.name);
    }
}

/// The message of a planted failure. Its input file is deleted.
fn failure(target: &'static Target, limit: Limit) -> String {
    let panic = catch_unwind(|| quick::run(target, 3, limit)).unwrap_err();
    std::fs::remove_file(quick::input_file(target)).unwrap();

    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()))
        .unwrap()
}

/// Fails for a word that no seed has.
const BROKEN: Target = Target {
    name: "broken",
    run: |input| assert!(!String::from_utf8_lossy(input).contains("zone"), "planted"),
    seeds: || vec![b"a long text about nothing".to_vec()],
    words: &["zone", "aws"],
    mutate: None,
};

#[test]
fn a_failing_input_is_found() {
    assert_eq!(failure(&BROKEN, Limit::Inputs(400)), "planted");
}

#[test]
fn a_slow_input_is_a_failure() {
    const SLOW: Target = Target {
        name: "slow",
        run: |_| while std::hint::black_box(true) && !is_over() {},
        ..BROKEN
    };
    fn is_over() -> bool {
        thread_local!(static START: std::time::Instant = std::time::Instant::now());
        START.with(|start| start.elapsed() > Duration::from_secs(60))
            || quick::processor_time() > Duration::from_millis(2200)
    }

    let message = failure(&SLOW, Limit::Inputs(0));
    assert!(message.contains("of processor time"), "{message}");
}
