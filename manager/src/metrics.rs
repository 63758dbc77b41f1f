//! Metrics, under the names that dashboards of the incumbent know, and a few of ours.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Upstream's edges (1, 4, 16, 64, 256, 1024) with finer ones between, and one at 60 s, where an alert belongs.
const DELAY_EDGES: [f64; 19] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 64.0, 120.0, 256.0, 300.0, 600.0, 1024.0,
];

/// Label of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LeaseLabel {
    /// Name of the Lease.
    pub name: String,
}

/// Labels of a running controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ManagedLabels {
    /// The controller, by its short name.
    pub name: String,
    /// Always `cloud-controller-manager`.
    pub manager: String,
}

/// Label of why something waits or stopped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// One of a closed list of reasons.
    pub reason: &'static str,
}

/// Labels of a question to the cloud by the node lifecycle controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CloudCallLabels {
    /// `instance_exists` or `instance_shutdown`.
    pub operation: &'static str,
    /// `success`, `error` or `instance_not_found`.
    pub result: &'static str,
}

/// Every metric of the manager. Clones share the values.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// `leader_election_master_status`: 1 while this process holds the Lease.
    pub leader: Family<LeaseLabel, Gauge>,
    /// `running_managed_controllers`: 1 while the controller runs here.
    pub running: Family<ManagedLabels, Gauge>,
    /// `node_controller_cloud_provider_taint_removal_delay_seconds`: from a Node's creation to its taint's end.
    pub taint_removal_delay: Histogram,
    /// `node_controller_initial_node_sync_delay_seconds`: from a Node's creation to the end of its first sync.
    pub initial_sync_delay: Histogram,
    /// `outrigger_node_initialization_waiting`: Nodes that wait, by reason.
    pub nodes_waiting: Family<ReasonLabel, Gauge>,
    /// `outrigger_node_address_rewrites_stopped`: Nodes whose addresses someone else writes too.
    pub address_rewrites_stopped: Gauge,
    /// `cloud_node_lifecycle_controller_monitor_nodes_duration_seconds`.
    pub lifecycle_pass: Histogram,
    /// `cloud_node_lifecycle_controller_cloud_provider_calls_total`: answers by Node, not calls on the wire.
    pub lifecycle_calls: Family<CloudCallLabels, Counter>,
    /// `outrigger_node_deletion_breaker_open`: 1 while too many Nodes look gone at once and none is deleted.
    pub deletion_breaker_open: Gauge,
    /// `service_controller_loadbalancer_sync_total`.
    pub service_syncs: Counter,
    /// `service_controller_nodesync_error_total`.
    pub service_node_sync_errors: Counter,
    /// `service_controller_nodesync_latency_seconds`.
    pub service_node_sync_latency: Histogram,
    /// `service_controller_update_loadbalancer_host_latency_seconds`.
    pub service_host_update_latency: Histogram,
    /// `outrigger_start_time_seconds`: when this process started, seconds since 1970.
    pub start_time: Gauge<f64, AtomicU64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn service_latency() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 15))
}

impl Metrics {
    /// All metrics at zero, registered.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            leader: Family::default(),
            running: Family::default(),
            taint_removal_delay: Histogram::new(DELAY_EDGES),
            initial_sync_delay: Histogram::new(DELAY_EDGES),
            nodes_waiting: Family::default(),
            address_rewrites_stopped: Gauge::default(),
            lifecycle_pass: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            lifecycle_calls: Family::default(),
            deletion_breaker_open: Gauge::default(),
            service_syncs: Counter::default(),
            service_node_sync_errors: Counter::default(),
            service_node_sync_latency: service_latency(),
            service_host_update_latency: service_latency(),
            start_time: Gauge::default(),
        };
        metrics.register_nodes();
        metrics.register_lifecycle_and_services();
        metrics
    }

    fn register_nodes(&self) {
        self.with_registry(|r| {
            r.register(
                "leader_election_master_status",
                "Whether this process holds the Lease",
                self.leader.clone(),
            );
            r.register(
                "running_managed_controllers",
                "Controllers that run in this process",
                self.running.clone(),
            );
            r.register(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "From a Node's creation to the end of its uninitialized taint",
                self.taint_removal_delay.clone(),
            );
            r.register(
                "node_controller_initial_node_sync_delay_seconds",
                "From a Node's creation to the end of its first sync",
                self.initial_sync_delay.clone(),
            );
            r.register(
                "outrigger_node_initialization_waiting",
                "Nodes that wait for initialization, by reason",
                self.nodes_waiting.clone(),
            );
            r.register(
                "outrigger_node_address_rewrites_stopped",
                "Nodes whose addresses are left alone since someone else writes them too",
                self.address_rewrites_stopped.clone(),
            );
            r.register(
                "outrigger_node_deletion_breaker_open",
                "Whether deletions of Nodes are held back since too many look gone at once",
                self.deletion_breaker_open.clone(),
            );
            r.register(
                "outrigger_start_time_seconds",
                "When this process started",
                self.start_time.clone(),
            );
        });
    }

    fn register_lifecycle_and_services(&self) {
        self.with_registry(|r| {
            r.register(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Duration of a pass over the Nodes",
                self.lifecycle_pass.clone(),
            );
            r.register(
                "cloud_node_lifecycle_controller_cloud_provider_calls",
                "Answers of the cloud about Nodes",
                self.lifecycle_calls.clone(),
            );
            r.register(
                "service_controller_loadbalancer_sync",
                "Syncs of load balancers after node updates",
                self.service_syncs.clone(),
            );
            r.register(
                "service_controller_nodesync_error",
                "Failed updates of load balancers after node updates",
                self.service_node_sync_errors.clone(),
            );
            r.register(
                "service_controller_nodesync_latency_seconds",
                "Duration of an update of all load balancers' nodes",
                self.service_node_sync_latency.clone(),
            );
            r.register(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Duration of an update of one load balancer's nodes",
                self.service_host_update_latency.clone(),
            );
        });
    }

    /// Registers further metrics: for controllers that keep their own.
    pub fn with_registry(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sets `running_managed_controllers` of a controller.
    pub fn set_running(&self, name: &str, running: bool) {
        let labels = ManagedLabels {
            name: name.into(),
            manager: "cloud-controller-manager".into(),
        };
        self.running.get_or_create(&labels).set(i64::from(running));
    }

    /// Sets `leader_election_master_status` of a Lease.
    pub fn set_leader(&self, lease: &str, leader: bool) {
        self.leader
            .get_or_create(&LeaseLabel { name: lease.into() })
            .set(i64::from(leader));
    }

    /// Everything in the OpenMetrics text format.
    ///
    /// # Errors
    /// Only when a metric cannot be written as text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incumbents_names_are_kept() {
        let metrics = Metrics::new();
        metrics.set_leader("cloud-controller-manager", true);
        metrics.set_running("service", true);
        metrics
            .lifecycle_calls
            .get_or_create(&CloudCallLabels {
                operation: "instance_exists",
                result: "success",
            })
            .inc();
        metrics.taint_removal_delay.observe(0.3);
        let text = metrics.encode().unwrap();
        for wanted in [
            "leader_election_master_status{name=\"cloud-controller-manager\"} 1",
            "running_managed_controllers{name=\"service\",manager=\"cloud-controller-manager\"} 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"60.0\"} 1",
            "node_controller_initial_node_sync_delay_seconds_count 0",
            "cloud_node_lifecycle_controller_cloud_provider_calls_total{operation=\"instance_exists\",result=\"success\"} 1",
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count 0",
            "service_controller_loadbalancer_sync_total 0",
            "service_controller_nodesync_error_total 0",
            "service_controller_nodesync_latency_seconds_count 0",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
    }
}
