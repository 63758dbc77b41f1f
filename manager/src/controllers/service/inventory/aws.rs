//! The clients of AWS, and what all Services share of their answers.

use std::sync::Arc;

use outrigger_aws::{Ec2, Elb, Elbv2};

use super::node_instances::NodeInstances;
use super::shared::Shared;
use super::tag_reads::TagReads;
use super::target_group_list::TargetGroupList;
use super::zone_cache::ZoneCache;

/// AWS, and what is remembered of it between Services.
pub struct Aws {
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
    /// All target groups, when they were last listed.
    pub target_groups: TargetGroupList,
    /// Instances of Nodes.
    pub instances: NodeInstances,
    /// Zones of the region.
    pub zones: ZoneCache,
    /// Whether tags of network load balancers are read to see whose they are: the UID of the cluster is known.
    pub reads_owners: bool,
    /// Whether tags of load balancers may be read.
    pub tag_reads: TagReads,
    /// What was said that serves several Services.
    pub shared: Shared,
}
