//! An external kube-controller-manager leads, and our manager holds M.

use super::cluster::Cluster;
use super::report::Report;

pub async fn attack(_cluster: &mut Cluster, _report: &mut Report) {}
