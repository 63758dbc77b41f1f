//! The table of targets.

use std::fs;
use std::path::Path;

use crate::files::files_below;
use crate::targets::{admission, cloud_config, command_line, leader_migration, pem, short_text, yaml_text};

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
}

macro_rules! target {
    ($name:ident) => {
        Target {
            name: stringify!($name),
            run: $name::run,
            seeds: $name::seeds,
            words: $name::WORDS,
        }
    };
}

pub const TARGETS: &[Target] = &[
    target!(admission),
    target!(command_line),
    target!(yaml_text),
    target!(cloud_config),
    target!(leader_migration),
    target!(pem),
    target!(short_text),
];

#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The inputs in `corpus/` for a target.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    files_below(&folder)
        .iter()
        .map(|file| fs::read(file).unwrap())
        .collect()
}

/// The corpus and the target's own seeds.
#[must_use]
pub fn all_seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = corpus(target);
    seeds.extend((target.seeds)());
    seeds
}
