//! Deletes the AWS resources of Services that are deleted, gone, or request no load balancer any more.

pub(super) mod deletion;
pub(super) mod orphaned_services;
pub mod sweep;
