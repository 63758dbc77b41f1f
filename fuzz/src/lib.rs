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

mod files;
pub mod mutate;
#[path = "../../shared/tests/published/mod.rs"]
mod published;
pub mod quick;
mod table;
pub mod targets;

pub use self::published::repository;
pub use self::table::{TARGETS, Target, all_seeds, corpus, find};
