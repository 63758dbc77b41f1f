//! The dependencies of the controller.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Tags};
use outrigger_leader::Permit;

use super::metrics::TaggingMetrics;
use crate::events::Recorder;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

#[derive(Clone)]
pub struct Deps {
    /// Client for the label.
    pub client: kube::Client,
    pub nodes: NodeCache,
    pub ec2: Arc<dyn Ec2>,
    pub instances: Instances,
    pub tags: Tags,
    /// The label's value for these tags; see [`label::value`](super::label::value).
    pub label: String,
    /// Up to 50 instances with one call, instead of one.
    pub batching: bool,
    /// Calls under way at the same time, at least 1.
    pub calls_at_once: usize,
    /// Nodes taken up per second; counts only with a burst limit above 0.
    pub rate_limit: f64,
    /// Nodes taken up before the rate limit counts.
    pub burst_limit: u32,
    /// Time between two searches for lost tags; `None`: there are none.
    pub resync_period: Option<Duration>,
    /// Metrics of all controllers.
    pub metrics: Metrics,
    /// Metrics of this one.
    pub counts: TaggingMetrics,
    /// Events, of component [`EVENT_COMPONENT`](super::EVENT_COMPONENT).
    pub events: Recorder,
    pub permit: Permit,
}
