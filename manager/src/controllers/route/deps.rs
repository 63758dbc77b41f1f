//! The dependencies of the controller.

use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::Ec2;
use outrigger_leader::Permit;

use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    /// Route tables and writes.
    pub ec2: Arc<dyn Ec2>,
    pub instances: Instances,
    /// The cluster's ID in the tags of its route tables and instances.
    pub cluster_id: String,
    /// Where tagged tables are looked for.
    pub vpc_id: String,
    /// The one table to be managed, whatever its tags.
    pub route_table_id: Option<String>,
    /// Routes outside this range are never changed or deleted.
    pub cluster_cidr: Ipv4Net,
    /// From the start of one periodic pass to the next.
    pub period: Duration,
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
