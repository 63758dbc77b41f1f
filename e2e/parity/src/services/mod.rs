//! Parity of Services: the same Service, changed and deleted in the same way, given to the incumbent and to our manager.
//!
//! ```text
//! case file ─▶ API server: the Service, Nodes ─▶ controller manager ─▶ Events, status, finalizers ─┐
//!          └─▶ moto: subnets, groups ◀─ gaps ◀─ proxy ◀──┘  writes in order, reads counted ────────┼▶ record, or compare
//!                     └──────────────────────────▶ load balancers, target groups, security groups ─┘
//! ```
//!
//! Each file of `e2e/parity/services` is a case: written by us down to `recorded:`, from there by `make parity-record`,
//! which runs the incumbent. `e2e/tests/parity_services.rs` runs our manager on the same cases and compares.

pub mod account;
pub mod case;
mod cluster;
pub mod compare;
pub mod draw;
mod environment;
mod manager;
mod names;
pub mod outcome;
mod parallel_worker;
mod writes;

pub use case::Case;
pub use draw::{draw, judge};
pub use names::Names;
pub use outcome::Outcome;
pub use parallel_worker::{Ran, run, run_as, run_each_without_an_action};
