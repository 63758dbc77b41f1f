//! The external cloud controller manager for AWS.

pub mod controllers;
