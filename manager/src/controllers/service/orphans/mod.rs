//! Deleting what Services had that do not want it any more, or do not exist.

pub(super) mod deletion;
pub(super) mod orphaned_services;
pub(super) mod release;
pub mod sweep;
