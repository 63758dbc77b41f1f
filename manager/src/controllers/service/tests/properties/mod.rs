//! Properties of the whole controller over many Services and many states of AWS.

mod case;
mod cluster;
mod compare;
mod crashes;
mod deletion;
mod edits;
mod ends;
mod faults;
mod likeness;
mod named;
mod network_edits;
mod run;
mod specs;
mod targets;

use proptest::test_runner::{Config, RngSeed};

/// The same few cases at every run, or as many new ones as `PROPTEST_CASES` says. A failure becomes a test with a name,
/// not a file of seeds.
fn config() -> Config {
    let base = Config {
        failure_persistence: None,
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
