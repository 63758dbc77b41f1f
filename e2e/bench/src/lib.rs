//! Benchmarks of the programs beside their alternatives, in one run on one machine.
//!
//! Folder `manager` measures the manager, `services` its service controller, and `builds` compares builds of
//! our programs with each other, and the other files measure the webhook.

pub mod answer;
pub mod builds;
pub mod client;
pub mod environment;
mod histogram;
pub mod load;
pub mod manager;
mod objects;
mod percentile;
pub mod placement;
pub mod report;
pub mod results;
pub mod review;
pub mod server;
pub mod services;
mod table;
mod usage;
pub mod webhook;
