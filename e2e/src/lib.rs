//! The proof: real API servers, real controller managers, simulated AWS, and the demo.

pub mod alone;
pub mod pod_routes;
