//! Fuzz targets for every parser of untrusted input.
//!
//! A target is a function of bytes in [`targets`] that panics when one of its checks fails. [`TARGETS`] lists them.
//! They run in two ways (`README.md`):
//!
//! - `quick` mutates seeds at random on stable Rust; the tests and `make fuzz-quick` use it;
//! - `cargo-fuzz/`, outside of this workspace, runs the same functions under libFuzzer, guided by coverage.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed check is a panic"
)]

pub mod mutate;
#[path = "../../shared/tests/published/mod.rs"]
mod published;
pub mod quick;
pub mod targets;

use std::fs;

use fastrand::Rng;

pub use self::published::repository;
use self::targets::admission::files_below;
use self::targets::{admission, cloud_config, command_line, leader_migration, pem, short_text, yaml_text};

/// A parser of untrusted input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its module in `targets`, its folder in `corpus/` and its program in `cargo-fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// Panics when a check fails.
    pub run: fn(&[u8]),
    /// Inputs to start from, besides those in `corpus/`.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Texts that mean something to the parser.
    pub words: &'static [&'static str],
    /// A change that keeps the types of the input and its links between parts. An unreadable input stays as it is.
    pub mutate: Option<fn(&mut Vec<u8>, &mut Rng)>,
}

impl Target {
    /// One change of an input. `other` gives parts to copy.
    pub fn change(&self, rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
        match self.mutate {
            Some(mutate) if rng.u8(..5) < 2 => {
                let mut input = input.to_vec();
                mutate(&mut input, rng);
                input
            }
            _ => mutate::mutate(rng, input, other, self.words),
        }
    }
}

macro_rules! target {
    ($name:ident) => {
        target!($name, None)
    };
    ($name:ident, $mutate:expr) => {
        Target {
            name: stringify!($name),
            run: $name::run,
            seeds: $name::seeds,
            words: $name::WORDS,
            mutate: $mutate,
        }
    };
}

pub const TARGETS: &[Target] = &[
    target!(admission, Some(admission::mutate)),
    target!(command_line, Some(command_line::mutate)),
    target!(yaml_text, Some(yaml_text::mutate)),
    target!(cloud_config),
    target!(leader_migration),
    target!(pem),
    target!(short_text),
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The inputs in `corpus/` for a target, and its own seeds.
///
/// # Panics
/// When a file cannot be read.
pub fn all_seeds(target: &Target) -> Vec<Vec<u8>> {
    let folder = repository().join("fuzz/corpus").join(target.name);
    let corpus = files_below(&folder).into_iter().map(|file| fs::read(file).unwrap());
    corpus.chain((target.seeds)()).collect()
}
