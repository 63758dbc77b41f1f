//! The control plane of a tenant, hosted by another cluster.

use super::report::Report;

pub async fn attack(_report: &mut Report) {}
