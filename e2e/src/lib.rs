//! The proof: real API servers, real controller managers, simulated AWS, and the demo.

pub mod alone;
pub mod audit;
pub mod aws;
pub mod bench;
pub mod cluster;
pub mod command;
pub mod demo;
pub mod kubelets;
pub mod leases;
pub mod load;
pub mod loopback;
pub mod parity;
pub mod pod_routes;
pub mod pods;
pub mod process;
pub mod run_folder;
pub mod stage;
pub mod timeline;
pub mod tools;
