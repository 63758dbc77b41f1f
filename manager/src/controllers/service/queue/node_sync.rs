//! The metrics `service_controller_*`. As in v1.37.0, an update counts when it changes nothing but targets.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::metrics::Metrics;

#[derive(Debug)]
pub struct NodeSync {
    metrics: Metrics,
    changed: Mutex<Option<Instant>>,
}

impl NodeSync {
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            changed: Mutex::new(None),
        }
    }

    /// Records a relevant change of Nodes.
    pub fn nodes_changed(&self) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Records the end of an update of one load balancer's targets that began at `began`.
    pub fn ended(&self, began: Instant, succeeded: bool) {
        self.metrics.service_syncs.inc();
        if !succeeded {
            self.metrics.service_node_sync_errors.inc();
            return;
        }

        let host = &self.metrics.service_host_update_latency;
        host.observe(began.elapsed().as_secs_f64());

        let changed = *self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = changed.map_or(began, |changed| changed.min(began));
        self.metrics
            .service_node_sync_latency
            .observe(since.elapsed().as_secs_f64());
    }
}
