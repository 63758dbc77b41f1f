//! Observed AWS resources of a Service. No IO.

pub mod classic;
pub mod known_tags;
pub mod network;
