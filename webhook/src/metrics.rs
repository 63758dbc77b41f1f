//! Metrics of the webhook. Every label has a closed set of values: a caller cannot create new series.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outrigger_decide::registration::{Configuration, Field};
use outrigger_decide::{Outcome, ValidationOutcome, kinds};
use outrigger_serving::{Ended, Observer, Refused};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::callers::Rank;
use crate::stored_objects::Deviation;

/// Buckets of the latency histogram in seconds: fine below a millisecond, where most reviews are, and up to the usual
/// timeout of an API server.
const SECONDS: [f64; 12] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0,
];

/// Validated, but never changed.
const MIGRATION: &str = "CloudProviderMigration";

const PHASES: [&str; 4] = ["InTree", "Prepare", "Migrate", "Complete"];

/// Names and values of labels, both known at compile time.
type Labels<const N: usize> = [(&'static str, &'static str); N];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Reviews, over TLS.
    Admission,
    /// Probes and metrics.
    Health,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedType {
    Migrations,
    /// Labels of namespaces.
    Namespaces,
    /// A cloud-controller-manager's lease.
    Lease,
    /// Addresses of the API servers.
    ApiServers,
    Secret,
    /// Registrations: compared, and with self-signed certificates their `caBundle` is set.
    Registrations,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reviews: Family<Labels<3>, Counter>,
    validations: Family<Labels<2>, Counter>,
    errors: Family<Labels<1>, Counter>,
    callers: Family<Labels<1>, Counter>,
    duration: Histogram,
    connections: Family<Labels<1>, Gauge>,
    connections_ended: Family<Labels<2>, Counter>,
    connections_refused: Family<Labels<2>, Counter>,
    certificate_days_left: Gauge<f64, AtomicU64>,
    certificate_reload_failures: Gauge,
    migrations_known: Gauge,
    migrations_unreadable: Gauge,
    watches_up: Family<Labels<1>, Gauge>,
    watch_failures: Family<Labels<1>, Counter>,
    objects_missed: Family<Labels<2>, Gauge>,
    registration_differences: Family<Labels<3>, Gauge>,
}

/// Registers a metric. Metrics are exposed in the order of registration.
fn metric<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("outrigger_webhook");
        let duration = Histogram::new(SECONDS);
        let all = &mut registry;
        Arc::new(Self {
            reviews: metric(all, "reviews", "Admission reviews decided, by kind, decision and phase"),
            validations: metric(all, "validations", "Validating reviews, by kind and decision"),
            errors: metric(all, "errors", "Requests without a decision, by class of error"),
            callers: metric(
                all,
                "callers",
                "Requests with a complete body, by caller: an API server, or another address",
            ),
            duration: {
                let help = "Time from the request headers to the response";
                all.register("review_duration_seconds", help, duration.clone());
                duration
            },
            connections: metric(all, "connections", "Open connections"),
            connections_ended: metric(
                all,
                "connections_ended",
                "Served connections, by the reason for their end",
            ),
            connections_refused: metric(all, "connections_refused", "Refused connections, by reason"),
            certificate_days_left: metric(
                all,
                "certificate_days_left",
                "Days until the serving certificate expires",
            ),
            certificate_reload_failures: metric(
                all,
                "certificate_reload_failures",
                "Failed reads of the certificate files",
            ),
            migrations_known: metric(all, "migrations_known", "CloudProviderMigrations in use"),
            migrations_unreadable: metric(
                all,
                "migrations_unreadable",
                "CloudProviderMigrations that this version cannot read and ignores",
            ),
            watches_up: metric(all, "watch_up", "1 while the watch follows the API server"),
            objects_missed: metric(
                all,
                "objects_missed",
                "Stored objects that are not in the form of their migration's phase, by kind, at the last check",
            ),
            registration_differences: metric(
                all,
                "registration_differences",
                "Differences between the registration in the cluster and the one that the migrations need, by field",
            ),
            watch_failures: metric(all, "watch_failures", "Failures of a watch"),
            registry,
        })
    }

    pub fn review(&self, kind: &str, outcome: Outcome, phase: Option<&str>) {
        let phase = PHASES.into_iter().find(|known| phase == Some(known));
        let labels = [
            ("kind", known_kind(kind).unwrap_or("other")),
            ("decision", outcome.as_str()),
            ("phase", phase.unwrap_or("none")),
        ];
        self.reviews.get_or_create(&labels).inc();
    }

    pub fn validation(&self, kind: &str, outcome: ValidationOutcome) {
        let own = (kind == MIGRATION).then_some(MIGRATION);
        let labels = [
            ("kind", known_kind(kind).or(own).unwrap_or("other")),
            ("decision", outcome.as_str()),
        ];
        self.validations.get_or_create(&labels).inc();
    }

    /// Counts a request that got no decision. `class` is one of the constants of the error types.
    pub fn error(&self, class: &'static str) {
        self.errors.get_or_create(&[("class", class)]).inc();
    }

    pub fn caller(&self, rank: Rank) {
        self.callers.get_or_create(&[("caller", rank.as_str())]).inc();
    }

    pub fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }

    pub fn of_port(self: &Arc<Self>, port: Port) -> Arc<dyn Observer> {
        Arc::new(Connections {
            metrics: Arc::clone(self),
            port: port.as_str(),
        })
    }

    pub fn certificate(&self, days_left: f64, failures: u64) {
        self.certificate_days_left.set(days_left);
        self.certificate_reload_failures
            .set(i64::try_from(failures).unwrap_or(i64::MAX));
    }

    pub fn migrations(&self, known: usize, unreadable: usize) {
        self.migrations_known.set(i64::try_from(known).unwrap_or(i64::MAX));
        self.migrations_unreadable
            .set(i64::try_from(unreadable).unwrap_or(i64::MAX));
    }

    /// Sets whether a watch works, and counts its failures.
    pub fn watch(&self, watched: WatchedType, up: bool) {
        let labels = [("watch", watched.as_str())];
        self.watches_up.get_or_create(&labels).set(i64::from(up));
        if !up {
            self.watch_failures.get_or_create(&labels).inc();
        }
    }

    /// Sets the findings of the last check; kinds without findings are set to zero.
    pub fn missed(&self, counts: &HashMap<(&'static str, Deviation), i64>) {
        for kind in kinds() {
            for deviation in [Deviation::Missed, Deviation::Refused] {
                let labels = [("kind", kind.kind), ("reason", deviation.as_str())];
                let count = counts.get(&(kind.kind, deviation)).copied().unwrap_or_default();
                self.objects_missed.get_or_create(&labels).set(count);
            }
        }
    }

    /// Sets the differences of a registration; fields without one are set to zero.
    pub fn registration(&self, configuration: Configuration, counts: &HashMap<Field, i64>) {
        for field in Field::ALL {
            let labels = [
                ("kind", configuration.kind()),
                ("registration", configuration.name()),
                ("field", field.as_str()),
            ];
            let count = counts.get(&field).copied().unwrap_or_default();
            self.registration_differences.get_or_create(&labels).set(count);
        }
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// [`std::fmt::Error`] when a metric cannot be encoded.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Port {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Health => "health",
        }
    }
}

impl WatchedType {
    /// The label in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Migrations => "migrations",
            Self::Namespaces => "namespaces",
            Self::Lease => "lease",
            Self::ApiServers => "api_servers",
            Self::Secret => "secret",
            Self::Registrations => "registrations",
        }
    }
}

/// A kind that has rules. Others share one label, because the caller chooses the kind.
fn known_kind(kind: &str) -> Option<&'static str> {
    kinds().find(|row| row.kind == kind).map(|row| row.kind)
}

#[derive(Debug)]
struct Connections {
    metrics: Arc<Metrics>,
    port: &'static str,
}

impl Connections {
    fn open(&self) -> Gauge {
        self.metrics.connections.get_or_create_owned(&[("port", self.port)])
    }

    const fn labels(&self, reason: &'static str) -> Labels<2> {
        [("port", self.port), ("reason", reason)]
    }
}

impl Observer for Connections {
    fn opened(&self) {
        self.open().inc();
    }

    fn closed(&self) {
        self.open().dec();
    }

    fn ended(&self, reason: Ended) {
        let labels = self.labels(reason.as_str());
        self.metrics.connections_ended.get_or_create(&labels).inc();
    }

    fn refused(&self, reason: Refused) {
        let labels = self.labels(reason.as_str());
        self.metrics.connections_refused.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_cannot_make_new_series() {
        let metrics = Metrics::new();
        for kind in ["Node", "Evil\n1", "Evil2"] {
            metrics.review(kind, Outcome::Changed, Some("Prepare"));
        }
        metrics.review("Node", Outcome::NotOurs, Some("nonsense"));
        metrics.validation("Evil3", ValidationOutcome::Denied);
        metrics.validation(MIGRATION, ValidationOutcome::Denied);
        let text = metrics.text().unwrap();
        assert!(!text.contains("Evil") && !text.contains("nonsense"), "{text}");
        let series = r#"outrigger_webhook_reviews_total{kind="other",decision="changed",phase="Prepare"} 2"#;
        assert!(text.contains(series), "{text}");
    }

    #[test]
    fn an_open_connection_counts_until_it_ends() {
        let metrics = Metrics::new();
        let connections = metrics.of_port(Port::Health);
        connections.opened();
        let shows = |text: &str| metrics.text().unwrap().contains(text);
        assert!(shows(r#"outrigger_webhook_connections{port="health"} 1"#));
        connections.closed();
        assert!(shows(r#"outrigger_webhook_connections{port="health"} 0"#));
    }
}
