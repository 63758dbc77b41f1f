//! `service_controller_*`: load balancers that follow the Nodes. As in the incumbent, an update counts here when it
//! changes nothing but targets.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::metrics::Metrics;

/// Counts updates of targets.
#[derive(Debug)]
pub struct NodeSync {
    metrics: Metrics,
    changed: Mutex<Option<Instant>>,
}

impl NodeSync {
    /// Counts in `metrics`.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            changed: Mutex::new(None),
        }
    }

    /// The Nodes changed in a way that matters to load balancers.
    pub fn nodes_changed(&self) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// An update of one load balancer's targets that began at `began` has ended.
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
