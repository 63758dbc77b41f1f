//! The structure of the project's own sources: modules, imports, import cycles, and sizes.
//!
//! `make house` prints the figures; `tests/architecture.rs` holds the rules of ARCHITECTURE.md against the sources.

pub mod dependencies;
pub mod duplicates;
pub mod imports;
pub mod links;
pub mod packages;
pub mod rules;
pub mod sizes;
pub mod sources;
pub mod words;

pub use imports::Imports;
pub use packages::Package;
pub use sources::{Module, Source};
