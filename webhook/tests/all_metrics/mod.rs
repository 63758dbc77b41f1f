//! The webhook's metrics, each with a value.

use std::collections::HashMap;
use std::time::Duration;

use outrigger_decide::registration::Configuration;
use outrigger_decide::{Outcome, ValidationOutcome};
use outrigger_serving::{Ended, Refused};
use outrigger_webhook::callers::Rank;
use outrigger_webhook::metrics::{Metrics, Port, WatchedType};

/// In the text format.
pub fn text() -> String {
    let metrics = Metrics::new();
    metrics.review("Node", Outcome::Changed, Some("Prepare"));
    metrics.validation("Node", ValidationOutcome::Denied);
    metrics.error("too_large");
    metrics.caller(Rank::ApiServer);
    metrics.took(Duration::from_millis(1));
    metrics.certificate(30.0, 0);
    metrics.migrations(1, 0);
    metrics.watch(WatchedType::Lease, false);
    metrics.missed(&HashMap::new());
    metrics.registration(Configuration::Main, &HashMap::new());
    let connections = metrics.of_port(Port::Admission);
    connections.opened();
    connections.ended(Ended::Peer);
    connections.refused(Refused::HandshakeFailed);
    metrics.text().unwrap()
}
