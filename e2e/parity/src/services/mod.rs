//! Parity of Services: the incumbent and our manager get the same Service with the same changes.
//!
//! ```text
//! case file ─▶ API server: the Service, Nodes ─▶ controller manager ─▶ Events, status, finalizers ─┐
//!          └─▶ moto: subnets, groups ◀─ gaps ◀─ proxy ◀──┘  writes in order, reads counted ────────┼▶ record, or compare
//!                     └──────────────────────────▶ load balancers, target groups, security groups ─┘
//! ```
//!
//! Each file of `e2e/parity/services` is a case. `make parity-record` runs the incumbent and writes `recorded:`.
//! `e2e/tests/parity_services.rs` runs our manager on the same cases and compares.

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
pub use parallel_worker::{Ran, run, run_as, run_without_an_action};
