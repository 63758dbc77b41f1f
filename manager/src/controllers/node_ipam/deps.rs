//! The dependencies of the controller.

use ipnet::IpNet;
use outrigger_leader::Permit;

use super::metrics::IpamMetrics;
use crate::events::Recorder;
use crate::node_cache::NodeCache;

/// A cluster CIDR and the prefix length of the Nodes' CIDRs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    pub cluster: IpNet,
    pub node_prefix: u8,
}

#[derive(Clone)]
pub struct Deps {
    /// Client for the list and for writes.
    pub client: kube::Client,
    pub nodes: NodeCache,
    /// The cluster CIDRs, at most one of each family.
    pub ranges: Vec<ClusterRange>,
    /// CIDRs that are never allocated: those of Services.
    pub excluded: Vec<IpNet>,
    pub metrics: IpamMetrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
