//! The classic load balancer that a Service asks for.

pub mod attributes;
pub mod desired;
pub mod health_check;

pub use desired::Desired;
