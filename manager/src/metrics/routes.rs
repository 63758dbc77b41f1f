//! Metrics of the route controller.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Catalog;

/// Labels of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteSyncLabels {
    /// `changed`, `noop` or `error`.
    pub outcome: &'static str,
    /// `periodic` or `node_change`.
    pub trigger: &'static str,
}

/// Metrics of the route controller. Clones share the values.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// `route_controller_route_sync_total`.
    pub syncs: Family<RouteSyncLabels, Counter>,
    /// `outrigger_route_deletions_held`.
    pub deferred: Gauge,
}

impl Routes {
    pub(super) fn register(&self, catalog: &mut Catalog) {
        catalog.family(
            "route_controller_route_sync",
            &["outcome", "trigger"],
            "Reconciliations of all routes, by outcome and trigger",
            self.syncs.clone(),
        );
        catalog.register(
            "outrigger_route_deletions_held",
            "Route deletions that are deferred because there are too many at once",
            self.deferred.clone(),
        );
    }
}
