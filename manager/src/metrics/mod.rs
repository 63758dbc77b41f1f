//! The incumbent's metrics under their names, for existing dashboards, and further metrics of this manager.
//!
//! ```text
//! controllers ─▶ Metrics, Queue ┐
//! AWS clients ─▶ aws            ├─▶ catalog ─▶ OpenMetrics ─▶ text: Prometheus' format
//! API clients ─▶ rest           │      └─▶ docs/metrics.md
//! /proc/self  ─▶ process        ┤
//! HTTPS port  ─▶ connections    ┘
//! ```

mod aws;
pub(crate) mod buckets;
mod catalog;
mod connections;
mod controllers;
mod migration;
mod process;
mod queue;
mod rest;
mod text;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outrigger_aws::CallObserver;
use outrigger_serving::Observer;
use prometheus_client::encoding::{EncodeLabelSet, text as open_metrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use aws::AwsCalls;
pub use catalog::{Catalog, Row};
use connections::Connections;
pub use controllers::{CloudCallLabels, KindLabel, LifecycleMetrics, NodeMetrics, RouteMetrics, RouteSyncLabels};
pub use migration::Migration;
use process::Process;
use queue::Queues;
pub use queue::{Queue, QueueLabel, Working};
pub use rest::{RestClient, RestLayer, RestService};
pub use text::BareCounter;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LeaseLabel {
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ManagedLabels {
    name: String,
    manager: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// One of a closed list of reasons.
    pub reason: &'static str,
}

/// Every metric of the manager. Clones share the values.
#[derive(Debug, Clone)]
pub struct Metrics {
    catalog: Arc<Mutex<Catalog>>,
    queues: Queues,
    aws: AwsCalls,
    rest: RestClient,
    process: Process,
    connections: Connections,
    pub migration: Migration,
    leader: Family<LeaseLabel, Gauge>,
    pub leader_slow_path: Family<LeaseLabel, Counter>,
    running: Family<ManagedLabels, Gauge>,
    pub nodes: NodeMetrics,
    pub lifecycle: LifecycleMetrics,
    pub service_syncs: Counter,
    pub service_node_sync_errors: Counter,
    pub service_node_sync_latency: Histogram,
    pub service_host_update_latency: Histogram,
    pub routes: RouteMetrics,
}

fn open_metrics_text(catalog: &Catalog) -> Result<String, fmt::Error> {
    let mut out = String::new();
    open_metrics::encode(&mut out, &catalog.registry)?;
    Ok(out)
}

/// All metrics of a catalog in Prometheus' text format 0.0.4.
pub fn prometheus_text(catalog: &Catalog) -> Result<String, fmt::Error> {
    open_metrics_text(catalog).map(|text| text::prometheus(&text))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut catalog = Catalog::default();
        Self {
            leader: catalog.labelled(
                "leader_election_master_status",
                &["name"],
                "Whether this process holds the Lease",
            ),
            leader_slow_path: catalog.labelled(
                "leader_election_slowpath",
                &["name"],
                "Lease renewals that had to read the Lease first",
            ),
            running: catalog.labelled(
                "running_managed_controllers",
                &["name", "manager"],
                "Controllers running in this process",
            ),
            nodes: NodeMetrics::registered(&mut catalog),
            lifecycle: LifecycleMetrics::registered(&mut catalog),
            service_syncs: catalog.single(
                "service_controller_loadbalancer_sync",
                "Syncs of all load balancers after Node changes",
            ),
            service_node_sync_errors: catalog.single(
                "service_controller_nodesync_error",
                "Failed updates of load balancers after Node changes",
            ),
            service_node_sync_latency: catalog.histogram(
                "service_controller_nodesync_latency_seconds",
                "Duration of updating the Nodes of all load balancers",
                buckets::load_balancer(),
            ),
            service_host_update_latency: catalog.histogram(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Duration of updating the Nodes of one load balancer",
                buckets::load_balancer(),
            ),
            queues: Queues::registered(&mut catalog),
            aws: AwsCalls::registered(&mut catalog),
            rest: RestClient::registered(&mut catalog),
            process: Process::registered(&mut catalog),
            connections: Connections::registered(&mut catalog),
            routes: RouteMetrics::registered(&mut catalog),
            migration: Migration::registered(&mut catalog),
            catalog: Arc::new(Mutex::new(catalog)),
        }
    }

    /// Registers further metrics: for controllers that keep their own.
    pub fn with_registry<T>(&self, register: impl FnOnce(&mut Catalog) -> T) -> T {
        register(&mut self.catalog())
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics of a controller's queue, under the incumbent's name of it; the same queue each time.
    pub fn queue(&self, name: &'static str) -> Queue {
        self.queues.queue(name)
    }

    pub fn aws_observer(&self) -> Arc<dyn CallObserver> {
        Arc::new(self.aws.clone())
    }

    pub fn connections(&self) -> Arc<dyn Observer> {
        Arc::new(self.connections.clone())
    }

    pub fn rest_client(&self) -> RestClient {
        self.rest.clone()
    }

    pub fn set_running(&self, name: &str, running: bool) {
        let labels = ManagedLabels {
            name: name.into(),
            manager: "cloud-controller-manager".into(),
        };
        self.running.get_or_create(&labels).set(i64::from(running));
    }

    /// Counts a renewal that had to read the Lease first.
    pub fn count_slow_path(&self, lease: &str) {
        self.leader_slow_path
            .get_or_create(&LeaseLabel { name: lease.into() })
            .inc();
    }

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
        let catalog = self.catalog();
        self.queues.refresh(Instant::now());
        self.process.refresh();
        open_metrics_text(&catalog)
    }

    /// Everything in Prometheus' text format 0.0.4.
    pub fn prometheus(&self) -> Result<String, fmt::Error> {
        Ok(text::prometheus(&self.encode()?))
    }

    pub fn rows(&self) -> Vec<Row> {
        self.catalog().rows().to_vec()
    }

    pub fn markdown(&self) -> String {
        self.catalog().markdown()
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
            .lifecycle
            .calls
            .get_or_create(&CloudCallLabels {
                operation: "instance_exists",
                result: "success",
            })
            .inc();
        metrics.nodes.taint_removal_delay.observe(0.3);
        let text = metrics.prometheus().unwrap();
        for wanted in [
            "leader_election_master_status{name=\"cloud-controller-manager\"} 1",
            "running_managed_controllers{name=\"service\",manager=\"cloud-controller-manager\"} 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"60\"} 1",
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
