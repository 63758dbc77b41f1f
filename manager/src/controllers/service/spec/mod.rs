//! The load balancer that a Service requests. No IO.

pub mod annotations;
pub mod desired;
pub mod names;
pub mod permissions;
pub mod request;
pub mod watched;
