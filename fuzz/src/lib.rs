//! Hostile inputs for everything that reads the words of others.
//!
//! ```text
//! seeds ─▶ mutate ─▶ target(data) ─▶ features: new behaviour? then the input becomes a seed
//! (corpus/, golden     │                panic, too slow, dead process: written to a file, with the command to replay it
//!  reviews, ../shared) └ JSON by its structure, text by its words, bytes
//! ```
//!
//! A target is a function of bytes that panics when a promise is broken, in `targets/`. Nothing here needs nightly Rust or
//! instrumented code: instead of counting branches, targets note what they saw ([`features::note`]), such as the reasons of a
//! decision, and an input that shows something new is kept. `README.md` says how a coverage-guided engine takes the same
//! functions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken promise is shown by a panic"
)]

pub mod engine;
pub mod features;
pub mod files;
pub mod mutate;
pub mod random;
pub mod shrink;
pub mod targets;

pub use self::targets::{TARGETS, Target};
