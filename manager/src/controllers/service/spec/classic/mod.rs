//! The classic load balancer that a Service requests.

pub mod attributes;
pub mod desired;
pub mod health_check;

pub use desired::Desired;
