//! The dependencies of the controller.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::Ec2;
use outrigger_leader::Permit;
use tokio::sync::watch;

use super::desired::ClusterSettings;
use super::topology::Pattern;
use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub instances: Instances,
    /// EC2, for zones and the network's topology.
    pub ec2: Arc<dyn Ec2>,
    pub place: ClusterSettings,
    /// The instance types of which EC2 tells their place in the network.
    pub topology: Pattern,
    /// Nodes initialized at the same time, at least 1.
    pub initializations: usize,
    /// Nodes refreshed or completed at the same time, at least 1.
    pub refreshes: usize,
    /// From the start of one refresh of all Nodes to the next.
    pub refresh_period: Duration,
    /// How long new Nodes are collected before one describe asks for all of them.
    pub window: Duration,
    /// Whether no kubelet writes addresses any more (true outside of a migration, and once it is complete).
    pub kubelets_external: watch::Receiver<bool>,
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
