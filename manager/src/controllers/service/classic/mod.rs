//! Classic load balancers: what a Service asks for, what AWS has, and the steps between the two.

pub mod apply;
pub mod attributes;
pub mod desired;
pub mod doomed;
pub mod health_check;
pub mod model;
pub mod observe;
pub mod plan;
pub mod ports;
mod step;

pub use desired::Desired;
pub use step::Step;
