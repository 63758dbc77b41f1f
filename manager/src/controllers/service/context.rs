//! The clients, settings and state that all functions of the controller share.

use std::sync::Arc;

use outrigger_leader::Permit;
use tokio::time::Instant;

use super::execute::node_groups::NodeGroups;
use super::inventory::Aws;
use super::queue::creation_queue::CreationQueues;
use super::queue::first_full::FirstFull;
use super::queue::node_changes::NodeSync;
use super::queue::service_state::ServiceStates;
use super::settings::Settings;
use super::writer::Writer;
use crate::node_cache::NodeCache;

pub struct Context {
    pub aws: Aws,
    pub settings: Settings,
    pub nodes: NodeCache,
    pub writer: Arc<dyn Writer>,
    pub permit: Permit,
    pub states: ServiceStates,
    pub node_sync: NodeSync,
    /// Until then no target is removed because its Node is missing: the Nodes may not be complete.
    pub settled_at: Instant,
    /// The security groups of Nodes, in which load balancers share rules.
    pub node_groups: NodeGroups,
    pub creation_queues: CreationQueues,
    pub first_full: FirstFull,
}
