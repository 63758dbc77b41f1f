//! Real control planes, Pods and other processes on loopback, for tests.

pub mod audit;
pub mod cluster;
pub mod command;
pub mod kubelets;
pub mod leases;
pub mod loopback;
pub mod pods;
pub mod process;
pub mod relay;
pub mod repository;
pub mod run_folder;
pub mod tools;
pub mod versions;
pub mod wait;
