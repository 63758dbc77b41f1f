//! The dependencies of the controller.

use ipnet::IpNet;
use outrigger_leader::Permit;

use super::metrics::IpamMetrics;
use crate::events::Recorder;
use crate::node_cache::NodeCache;

/// A range of the cluster and the length of the Nodes' prefixes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    /// The range.
    pub cluster: IpNet,
    /// Prefix length of each Node's.
    pub node_prefix: u8,
}

#[derive(Clone)]
pub struct Deps {
    /// Client for the list and for writes.
    pub client: kube::Client,
    pub nodes: NodeCache,
    /// The cluster's ranges, at most one of each family.
    pub ranges: Vec<ClusterRange>,
    /// Ranges that are never given: those of Services.
    pub excluded: Vec<IpNet>,
    pub metrics: IpamMetrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
