//! Metrics of the controllers of Nodes and routes. Clones share the values.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Catalog, ReasonLabel, buckets};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    /// `ec2`, `fargate` or `foreign`.
    pub kind: &'static str,
}

#[derive(Debug, Clone)]
pub struct NodeMetrics {
    pub taint_removal_delay: Histogram,
    pub initial_sync_delay: Histogram,
    pub waiting: Family<ReasonLabel, Gauge>,
    /// As of the last refresh of all.
    pub by_kind: Family<KindLabel, Gauge>,
    pub address_rewrites_stopped: Gauge,
}

impl NodeMetrics {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            taint_removal_delay: catalog.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Time from a Node's creation to the removal of its uninitialized taint",
                buckets::node_delay(),
            ),
            initial_sync_delay: catalog.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Time from a Node's creation to the end of its first sync",
                buckets::node_delay(),
            ),
            waiting: catalog.labelled(
                "outrigger_node_initialization_waiting",
                &["reason"],
                "Nodes waiting for initialization, by reason",
            ),
            by_kind: catalog.labelled(
                "outrigger_nodes",
                &["kind"],
                "Nodes by the platform that runs them; foreign Nodes are not managed",
            ),
            address_rewrites_stopped: catalog.single(
                "outrigger_node_address_rewrites_stopped",
                "Nodes whose addresses are no longer written because another writer changes them, too",
            ),
        }
    }
}

/// Labels of a question to the cloud by the node lifecycle controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CloudCallLabels {
    /// `instance_exists` or `instance_shutdown`.
    pub operation: &'static str,
    /// `success`, `error` or `instance_not_found`.
    pub result: &'static str,
}

#[derive(Debug, Clone)]
pub struct LifecycleMetrics {
    pub deletion_breaker_open: Gauge,
    pub pass: Histogram,
    /// Answers by Node, not calls on the wire.
    pub calls: Family<CloudCallLabels, Counter>,
}

impl LifecycleMetrics {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            deletion_breaker_open: catalog.single(
                "outrigger_node_deletion_breaker_open",
                "Whether Node deletions are deferred because EC2 does not list the instances of too many Nodes",
            ),
            pass: catalog.histogram(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Duration of a check of all Nodes",
                buckets::lifecycle_pass(),
            ),
            calls: catalog.labelled(
                "cloud_node_lifecycle_controller_cloud_provider_calls",
                &["operation", "result"],
                "Results of AWS calls about the instances of Nodes",
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteSyncLabels {
    /// `changed`, `noop` or `error`.
    pub outcome: &'static str,
    /// `periodic` or `node_change`.
    pub trigger: &'static str,
}

#[derive(Debug, Clone)]
pub struct RouteMetrics {
    pub syncs: Family<RouteSyncLabels, Counter>,
    pub deferred: Gauge,
}

impl RouteMetrics {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            syncs: catalog.labelled(
                "route_controller_route_sync",
                &["outcome", "trigger"],
                "Reconciliations of all routes, by outcome and trigger",
            ),
            deferred: catalog.single(
                "outrigger_route_deletions_held",
                "Route deletions that are deferred because there are too many at once",
            ),
        }
    }
}
