//! Properties of the whole controller over many Services and many states of AWS.

mod case;
mod claims;
mod cluster;
mod compare;
mod crashes;
mod deletion;
mod dry_run;
mod edits;
mod ends;
mod faults;
mod likeness;
mod named;
mod network_edits;
mod quotas;
pub(super) mod run;
mod specs;
mod targets;

use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// Each failing case is added to this file of the package. Each later run begins with the cases of the file, so commit it
/// with the fix. A change of the generated values makes other cases of them: a case that matters becomes a test with a name.
const KEPT: &str = "proptest-regressions/service-plans.txt";

/// The same few cases at every run, or as many new ones as `PROPTEST_CASES` says, of another seed each time
/// (`make properties`).
fn config() -> Config {
    let base = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        max_shrink_iters: 3000,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return base;
    }
    Config {
        cases: 24,
        rng_seed: RngSeed::Fixed(7),
        ..base
    }
}

#[test]
fn the_file_of_failing_cases_is_in_the_package() {
    let kept = std::fs::read_to_string(KEPT).unwrap();
    assert!(
        kept.starts_with("# Failing cases of the properties of Service plans"),
        "{kept}"
    );
}
