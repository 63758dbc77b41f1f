//! The service controller beside the incumbent's: existing load balancers, a start, and new Services.

pub mod environment;
pub mod measure;
pub mod report;
pub mod scenarios;
