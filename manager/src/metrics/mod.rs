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
mod buckets;
mod catalog;
mod connections;
mod migration;
mod process;
mod queue;
mod rest;
mod routes;
mod text;

use std::fmt;
use std::sync::atomic::AtomicU64;
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
pub use migration::Migration;
use process::Process;
use queue::Queues;
pub use queue::{Queue, QueueLabel, Working};
pub use rest::{RestClient, RestLayer, RestService};
pub use routes::{RouteSyncLabels, Routes};
pub use text::BareCounter;

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

/// Label of what runs a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    /// `ec2`, `fargate` or `foreign`.
    pub kind: &'static str,
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
    catalog: Arc<Mutex<Catalog>>,
    queues: Queues,
    aws: AwsCalls,
    rest: RestClient,
    process: Process,
    connections: Connections,
    /// `outrigger_migration_*`, `outrigger_controller_owner`.
    pub migration: Migration,
    /// `leader_election_master_status`: 1 while this process holds the Lease.
    pub leader: Family<LeaseLabel, Gauge>,
    /// `leader_election_slowpath_total`: renewals that had to read the Lease first.
    pub leader_slow_path: Family<LeaseLabel, Counter>,
    /// `running_managed_controllers`: 1 while the controller runs here.
    pub running: Family<ManagedLabels, Gauge>,
    /// `node_controller_cloud_provider_taint_removal_delay_seconds`: from a Node's creation to its taint's end.
    pub taint_removal_delay: Histogram,
    /// `node_controller_initial_node_sync_delay_seconds`: from a Node's creation to the end of its first sync.
    pub initial_sync_delay: Histogram,
    /// `outrigger_node_initialization_waiting`: Nodes that wait, by reason.
    pub nodes_waiting: Family<ReasonLabel, Gauge>,
    /// `outrigger_nodes`: Nodes by what runs them, as of the last refresh of all.
    pub nodes: Family<KindLabel, Gauge>,
    /// `outrigger_node_address_rewrites_stopped`: Nodes whose addresses someone else writes too.
    pub address_rewrites_stopped: Gauge,
    /// `cloud_node_lifecycle_controller_monitor_nodes_duration_seconds`.
    pub lifecycle_pass: Histogram,
    /// `cloud_node_lifecycle_controller_cloud_provider_calls_total`: answers by Node, not calls on the wire.
    pub lifecycle_calls: Family<CloudCallLabels, Counter>,
    /// `outrigger_node_deletion_breaker_open`: 1 while deletions are deferred because EC2 does not list the instances of
    /// too many Nodes.
    pub deletion_breaker_open: Gauge,
    /// `service_controller_loadbalancer_sync_total`.
    pub service_syncs: Counter,
    /// `service_controller_nodesync_error_total`.
    pub service_node_sync_errors: Counter,
    /// `service_controller_nodesync_latency_seconds`.
    pub service_node_sync_latency: Histogram,
    /// `service_controller_update_loadbalancer_host_latency_seconds`.
    pub service_host_update_latency: Histogram,
    /// `route_controller_*`, `outrigger_route_*`.
    pub routes: Routes,
    /// `outrigger_start_time_seconds`: when this process started, seconds since 1970.
    pub start_time: Gauge<f64, AtomicU64>,
}

fn open_metrics_text(catalog: &Catalog) -> Result<String, fmt::Error> {
    let mut out = String::new();
    open_metrics::encode(&mut out, &catalog.registry)?;
    Ok(out)
}

/// All metrics of a catalog in Prometheus' text format 0.0.4.
///
/// # Errors
/// Only when a metric cannot be written as text.
pub fn prometheus_text(catalog: &Catalog) -> Result<String, fmt::Error> {
    open_metrics_text(catalog).map(|text| text::prometheus(&text))
}

/// Bounds of a histogram of times from a Node's creation to something about it, in seconds.
#[must_use]
pub fn node_delay_bounds() -> Vec<f64> {
    buckets::node_delay()
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

impl Metrics {
    /// All metrics at zero, registered.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            catalog: Arc::default(),
            queues: Queues::default(),
            aws: AwsCalls::default(),
            rest: RestClient::default(),
            process: Process::default(),
            connections: Connections::default(),
            migration: Migration::default(),
            routes: Routes::default(),
            leader: Family::default(),
            leader_slow_path: Family::default(),
            running: Family::default(),
            taint_removal_delay: Histogram::new(buckets::node_delay()),
            initial_sync_delay: Histogram::new(buckets::node_delay()),
            nodes_waiting: Family::default(),
            nodes: Family::default(),
            address_rewrites_stopped: Gauge::default(),
            lifecycle_pass: Histogram::new(buckets::lifecycle_pass()),
            lifecycle_calls: Family::default(),
            deletion_breaker_open: Gauge::default(),
            service_syncs: Counter::default(),
            service_node_sync_errors: Counter::default(),
            service_node_sync_latency: Histogram::new(buckets::load_balancer()),
            service_host_update_latency: Histogram::new(buckets::load_balancer()),
            start_time: Gauge::default(),
        };

        metrics.register_nodes();
        metrics.register_lifecycle_and_services();
        metrics.with_registry(|catalog| {
            metrics.queues.register(catalog);
            metrics.aws.register(catalog);
            metrics.rest.register(catalog);
            metrics.process.register(catalog);
            metrics.connections.register(catalog);
            metrics.routes.register(catalog);
            metrics.migration.register(catalog);
        });

        metrics
    }

    fn register_nodes(&self) {
        self.with_registry(|r| {
            r.family(
                "leader_election_master_status",
                &["name"],
                "Whether this process holds the Lease",
                self.leader.clone(),
            );
            r.family(
                "leader_election_slowpath",
                &["name"],
                "Lease renewals that had to read the Lease first",
                self.leader_slow_path.clone(),
            );
            r.family(
                "running_managed_controllers",
                &["name", "manager"],
                "Controllers running in this process",
                self.running.clone(),
            );
            r.register(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Time from a Node's creation to the removal of its uninitialized taint",
                self.taint_removal_delay.clone(),
            );
            r.register(
                "node_controller_initial_node_sync_delay_seconds",
                "Time from a Node's creation to the end of its first sync",
                self.initial_sync_delay.clone(),
            );
            r.family(
                "outrigger_node_initialization_waiting",
                &["reason"],
                "Nodes waiting for initialization, by reason",
                self.nodes_waiting.clone(),
            );
            r.family(
                "outrigger_nodes",
                &["kind"],
                "Nodes by the platform that runs them; foreign Nodes are not managed",
                self.nodes.clone(),
            );
            r.register(
                "outrigger_node_address_rewrites_stopped",
                "Nodes whose addresses are no longer written because another writer changes them, too",
                self.address_rewrites_stopped.clone(),
            );
            r.register(
                "outrigger_node_deletion_breaker_open",
                "Whether Node deletions are deferred because EC2 does not list the instances of too many Nodes",
                self.deletion_breaker_open.clone(),
            );
            r.register(
                "outrigger_start_time_seconds",
                "Start time of the process, in seconds since 1970",
                self.start_time.clone(),
            );
        });
    }

    fn register_lifecycle_and_services(&self) {
        self.with_registry(|r| {
            r.register(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Duration of a check of all Nodes",
                self.lifecycle_pass.clone(),
            );
            r.family(
                "cloud_node_lifecycle_controller_cloud_provider_calls",
                &["operation", "result"],
                "AWS results about the instances of Nodes",
                self.lifecycle_calls.clone(),
            );
            r.register(
                "service_controller_loadbalancer_sync",
                "Syncs of all load balancers after Node changes",
                self.service_syncs.clone(),
            );
            r.register(
                "service_controller_nodesync_error",
                "Failed updates of load balancers after Node changes",
                self.service_node_sync_errors.clone(),
            );
            r.register(
                "service_controller_nodesync_latency_seconds",
                "Duration of updating the Nodes of all load balancers",
                self.service_node_sync_latency.clone(),
            );
            r.register(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Duration of updating the Nodes of one load balancer",
                self.service_host_update_latency.clone(),
            );
        });
    }

    /// Registers further metrics: for controllers that keep their own.
    pub fn with_registry(&self, register: impl FnOnce(&mut Catalog)) {
        register(&mut self.catalog());
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics of a controller's queue, under the incumbent's name of it; the same queue each time.
    #[must_use]
    pub fn queue(&self, name: &'static str) -> Queue {
        self.queues.queue(name)
    }

    #[must_use]
    pub fn aws_observer(&self) -> Arc<dyn CallObserver> {
        Arc::new(self.aws.clone())
    }

    /// Counts connections to the HTTPS port.
    #[must_use]
    pub fn connections(&self) -> Arc<dyn Observer> {
        self.connections.observer()
    }

    #[must_use]
    pub fn rest_client(&self) -> RestClient {
        self.rest.clone()
    }

    /// Sets `running_managed_controllers` of a controller.
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
        let catalog = self.catalog();
        self.queues.refresh(Instant::now());
        self.process.refresh();
        open_metrics_text(&catalog)
    }

    /// Everything in Prometheus' text format 0.0.4.
    ///
    /// # Errors
    /// As [`Metrics::encode`].
    pub fn prometheus(&self) -> Result<String, fmt::Error> {
        Ok(text::prometheus(&self.encode()?))
    }

    /// Every metric that is registered.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.catalog().rows().to_vec()
    }

    /// `docs/metrics.md`.
    #[must_use]
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
            .lifecycle_calls
            .get_or_create(&CloudCallLabels {
                operation: "instance_exists",
                result: "success",
            })
            .inc();
        metrics.taint_removal_delay.observe(0.3);
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
