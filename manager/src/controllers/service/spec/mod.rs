//! The load balancer that a Service requests. No IO.

pub mod annotations;
pub mod classic;
pub mod desired;
pub mod hostname;
pub mod names;
pub mod network;
pub mod owner;
pub mod request;
pub mod source_ranges;
