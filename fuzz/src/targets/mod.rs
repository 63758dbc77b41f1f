//! **The table of targets.** Each is a function of bytes that panics when a promise is broken.

pub mod admission;
pub mod cloud_config;
pub mod command_line;
pub mod leader_migration;
pub mod pem;
pub mod words;
pub mod yaml_text;

use crate::random::Random;

/// Something that reads the words of others.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Such as `admission`.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// One change of an input; the third argument is another input.
    pub mutate: fn(&mut Random, &[u8], &[u8]) -> Vec<u8>,
    /// What to start with, besides the kept inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Its part of the time.
    pub weight: u32,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "admission",
        run: admission::target,
        mutate: admission::mutate,
        seeds: admission::seeds,
        weight: 12,
    },
    Target {
        name: "command-line",
        run: command_line::target,
        mutate: command_line::mutate,
        seeds: command_line::seeds,
        weight: 4,
    },
    Target {
        name: "yaml-text",
        run: yaml_text::target,
        mutate: yaml_text::mutate,
        seeds: yaml_text::seeds,
        weight: 4,
    },
    Target {
        name: "cloud-config",
        run: cloud_config::target,
        mutate: cloud_config::mutate,
        seeds: cloud_config::seeds,
        weight: 2,
    },
    Target {
        name: "leader-migration",
        run: leader_migration::target,
        mutate: leader_migration::mutate,
        seeds: leader_migration::seeds,
        weight: 2,
    },
    Target {
        name: "pem",
        run: pem::target,
        mutate: pem::mutate,
        seeds: pem::seeds,
        weight: 2,
    },
    Target {
        name: "words",
        run: words::target,
        mutate: words::mutate,
        seeds: words::seeds,
        weight: 2,
    },
];

/// The target of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The text, where the bytes are one: for readers that take only text.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}
