//! The dependencies of the controller.

use std::time::Duration;

use outrigger_leader::Permit;

use crate::args::DeletionBreaker;
use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

#[derive(Clone)]
pub struct Deps {
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub instances: Instances,
    /// The interval between the starts of two passes.
    pub monitor_period: Duration,
    /// Limits of deletions.
    pub breaker: DeletionBreaker,
    pub metrics: Metrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
