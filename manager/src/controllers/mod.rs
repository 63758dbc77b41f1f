//! The controllers. They do not know each other.

pub mod node;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod route;
pub mod service;
pub mod tagging;
