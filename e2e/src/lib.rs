//! The proof: real API servers, real controller managers, simulated AWS, and the demo.

pub mod page;
pub mod pod_routes;
pub mod single_cluster;
pub mod stored_objects;
pub mod test_nodes;
