//! Parity of Nodes: the same Node in the same AWS, given to the incumbent and to our manager.
//!
//! ```text
//! case file ─▶ API server: the Node ─▶ controller manager ─▶ what is stored in the end ─▶ record, or compare
//!          └─▶ scripted EC2 ─────────────────▲
//! ```
//!
//! Each file of `e2e/parity/nodes` is a case: written by us down to `recorded:`, from there by `make parity-record`,
//! which runs the incumbent. `e2e/tests/parity.rs` runs our manager on the same cases and compares.

pub mod aws;
pub mod case;
pub mod compare;
mod harness;
mod subject;

pub use case::{Case, Outcome};
pub use harness::run;
pub use subject::Subject;
