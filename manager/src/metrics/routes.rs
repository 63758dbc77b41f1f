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
            "Passes over the routes, by outcome and by what started them",
            self.syncs.clone(),
        );
        catalog.register(
            "outrigger_route_deletions_held",
            "Routes that look unwanted and stay for now, since they are many at once",
            self.deferred.clone(),
        );
    }
}
