//! Metrics of the connections to the HTTPS port.

use std::sync::Arc;

use outrigger_serving::{Ended, Observer, Refused};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Catalog, ReasonLabel};

/// Metrics of the connections to the HTTPS port. Clones share the values.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections {
    open: Gauge,
    ended: Family<ReasonLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
}

impl Connections {
    pub(super) fn register(&self, catalog: &mut Catalog) {
        catalog.register(
            "outrigger_http_connections",
            "Open connections to the HTTPS port",
            self.open.clone(),
        );
        catalog.family(
            "outrigger_http_connections_ended",
            &["reason"],
            "Served connections to the HTTPS port, by the reason for their end",
            self.ended.clone(),
        );
        catalog.family(
            "outrigger_http_connections_refused",
            &["reason"],
            "Refused connections to the HTTPS port, by reason",
            self.refused.clone(),
        );
    }

    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.clone())
    }
}

impl Observer for Connections {
    fn opened(&self) {
        self.open.inc();
    }

    fn closed(&self) {
        self.open.dec();
    }

    fn ended(&self, reason: Ended) {
        let reason = reason.as_str();
        self.ended.get_or_create(&ReasonLabel { reason }).inc();
    }

    fn refused(&self, reason: Refused) {
        let reason = reason.as_str();
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }
}
