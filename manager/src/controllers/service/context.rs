//! The clients, settings and state that all functions of the controller share.

use std::sync::Arc;

use outrigger_leader::Permit;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::inventory::Aws;
use super::queue::creation_queue::CreationQueues;
use super::queue::node_sync::NodeSync;
use super::queue::service_state::ServiceStates;
use super::settings::Settings;
use super::writer::Writer;
use crate::node_cache::NodeCache;

/// The service controller's state and tools.
pub struct Context {
    /// AWS.
    pub aws: Aws,
    /// What holds for all Services.
    pub settings: Settings,
    /// The Nodes.
    pub nodes: NodeCache,
    /// The API server.
    pub writer: Arc<dyn Writer>,
    /// The right to write.
    pub permit: Permit,
    /// What is remembered.
    pub states: ServiceStates,
    /// Counts updates of targets.
    pub node_sync: NodeSync,
    /// Until then no target goes because its Node is not there: what is known may not be complete yet.
    pub settled_at: Instant,
    /// Held from the look before a deletion to its last write: load balancers share rules of nodes' groups, and of two that
    /// go at once each would leave a rule to the other.
    pub deleting: Mutex<()>,
    /// Who waits to have a load balancer made.
    pub creation_queues: CreationQueues,
}
