//! Observed AWS resources of a Service. No IO.

pub mod classic;
pub mod network;
