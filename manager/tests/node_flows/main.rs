//! The concurrent flows of the node controller, against an API server and an AWS in memory.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod complete;
mod denied;
mod fargate;
#[path = "../node_support/mod.rs"]
mod node_support;
mod priorities;
mod reasons;
mod topology;
