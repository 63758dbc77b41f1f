//! The network load balancer that a Service requests.

pub mod attributes;
pub mod desired;
pub mod health_check;
pub mod names;

pub use desired::Desired;
