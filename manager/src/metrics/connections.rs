//! Metrics of the connections to the HTTPS port.

use outrigger_serving::{Ended, Observer, Refused};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Catalog, ReasonLabel};

#[derive(Debug, Clone)]
pub(super) struct Connections {
    open: Gauge,
    ended: Family<ReasonLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
}

impl Connections {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            open: catalog.single("outrigger_http_connections", "Open connections to the HTTPS port"),
            ended: catalog.labelled(
                "outrigger_http_connections_ended",
                &["reason"],
                "Served connections to the HTTPS port, by the reason for their end",
            ),
            refused: catalog.labelled(
                "outrigger_http_connections_refused",
                &["reason"],
                "Refused connections to the HTTPS port, by reason",
            ),
        }
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
