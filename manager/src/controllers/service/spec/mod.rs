//! The load balancer that a Service requests. No IO.

pub mod annotations;
pub mod classic;
pub mod desired;
pub mod hostname;
pub mod names;
pub mod network;
pub mod request;
