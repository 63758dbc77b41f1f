//! Metrics of the webhook. Every label has a closed set of values: a caller cannot create new series.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outrigger_serving::{Ended, Observer, Refused};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::decide::{Outcome, ValidationOutcome, kinds};
use crate::registration::{Configuration, Field};
use crate::stored_objects::Deviation;

/// Buckets of the latency histogram in seconds: fine below a millisecond, where most reviews are, and up to the usual
/// timeout of an API server.
const SECONDS: [f64; 12] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0,
];

/// Validated, but never changed.
const MIGRATION: &str = "CloudProviderMigration";

const PHASES: [&str; 4] = ["InTree", "Prepare", "Migrate", "Complete"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    kind: LabelText,
    decision: LabelText,
    phase: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Validation {
    kind: LabelText,
    decision: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    class: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Listener {
    port: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    port: LabelText,
    reason: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Missed {
    kind: LabelText,
    reason: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watch {
    watch: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Registered {
    kind: LabelText,
    registration: LabelText,
    field: LabelText,
}

/// A label value known at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LabelText(&'static str);

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }
}

/// A port of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Reviews, over TLS.
    Admission,
    /// Probes and metrics.
    Health,
}

/// A watched type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedType {
    /// The `CloudProviderMigration` objects.
    Migrations,
    /// Labels of namespaces.
    Namespaces,
    /// A cloud-controller-manager's lease.
    Lease,
    /// The Secret with self-signed certificates.
    Secret,
    /// Registrations: compared, and with self-signed certificates their `caBundle` is set.
    Registrations,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reviews: Family<Review, Counter>,
    validations: Family<Validation, Counter>,
    errors: Family<Class, Counter>,
    duration: Histogram,
    connections: Family<Listener, Gauge>,
    connections_ended: Family<Reason, Counter>,
    connections_refused: Family<Reason, Counter>,
    certificate_days_left: Gauge<f64, AtomicU64>,
    certificate_reload_failures: Gauge,
    migrations_known: Gauge,
    migrations_unreadable: Gauge,
    watches_up: Family<Watch, Gauge>,
    watch_failures: Family<Watch, Counter>,
    objects_missed: Family<Missed, Gauge>,
    registration_differences: Family<Registered, Gauge>,
}

impl Metrics {
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix("outrigger_webhook"),
            reviews: Family::default(),
            validations: Family::default(),
            errors: Family::default(),
            duration: Histogram::new(SECONDS),
            connections: Family::default(),
            connections_ended: Family::default(),
            connections_refused: Family::default(),
            certificate_days_left: Gauge::default(),
            certificate_reload_failures: Gauge::default(),
            migrations_known: Gauge::default(),
            migrations_unreadable: Gauge::default(),
            watches_up: Family::default(),
            watch_failures: Family::default(),
            objects_missed: Family::default(),
            registration_differences: Family::default(),
        };

        metrics.register();
        Arc::new(metrics)
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "reviews",
            "Admission reviews decided, by kind, decision and phase",
            self.reviews.clone(),
        );
        registry.register(
            "validations",
            "Validating reviews, by kind and decision",
            self.validations.clone(),
        );
        registry.register(
            "errors",
            "Requests without a decision, by class of error",
            self.errors.clone(),
        );
        registry.register(
            "review_duration_seconds",
            "Time from the request headers to the response",
            self.duration.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_ended",
            "Served connections, by the reason for their end",
            self.connections_ended.clone(),
        );
        registry.register(
            "connections_refused",
            "Refused connections, by reason",
            self.connections_refused.clone(),
        );
        registry.register(
            "certificate_days_left",
            "Days until the serving certificate expires",
            self.certificate_days_left.clone(),
        );
        registry.register(
            "certificate_reload_failures",
            "Failed reads of the certificate files",
            self.certificate_reload_failures.clone(),
        );
        registry.register(
            "migrations_known",
            "CloudProviderMigrations in use",
            self.migrations_known.clone(),
        );
        registry.register(
            "migrations_unreadable",
            "CloudProviderMigrations that this version cannot read and ignores",
            self.migrations_unreadable.clone(),
        );
        registry.register(
            "watch_up",
            "1 while the watch follows the API server",
            self.watches_up.clone(),
        );
        registry.register(
            "objects_missed",
            "Stored objects that are not in the form of their migration's phase, by kind, at the last check",
            self.objects_missed.clone(),
        );
        registry.register(
            "registration_differences",
            "Differences between the registration in the cluster and the one that the migrations need, by field",
            self.registration_differences.clone(),
        );
        registry.register("watch_failures", "Failures of a watch", self.watch_failures.clone());
    }

    /// Counts a decided review.
    pub fn review(&self, kind: &str, outcome: Outcome, phase: Option<&str>) {
        let labels = Review {
            kind: LabelText(known_kind(kind).unwrap_or("other")),
            decision: LabelText(outcome.as_str()),
            phase: LabelText(phase.and_then(|phase| known(&PHASES, phase)).unwrap_or("none")),
        };
        self.reviews.get_or_create(&labels).inc();
    }

    /// Counts a validating review.
    pub fn validation(&self, kind: &str, outcome: ValidationOutcome) {
        let own = (kind == MIGRATION).then_some(MIGRATION);
        let labels = Validation {
            kind: LabelText(known_kind(kind).or(own).unwrap_or("other")),
            decision: LabelText(outcome.as_str()),
        };
        self.validations.get_or_create(&labels).inc();
    }

    /// Counts a request that got no decision. `class` is one of the constants of the error types.
    pub fn error(&self, class: &'static str) {
        self.errors
            .get_or_create(&Class {
                class: LabelText(class),
            })
            .inc();
    }

    /// Records how long a request took.
    pub fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }

    /// Counts the connections of a port.
    #[must_use]
    pub fn of_port(self: &Arc<Self>, port: Port) -> Arc<dyn Observer> {
        Arc::new(Connections {
            metrics: Arc::clone(self),
            port: port.text(),
        })
    }

    /// Sets the state of the serving certificate.
    pub fn certificate(&self, days_left: f64, failures: u64) {
        self.certificate_days_left.set(days_left);
        self.certificate_reload_failures
            .set(i64::try_from(failures).unwrap_or(i64::MAX));
    }

    /// Sets how many migrations there are, and how many could not be read.
    pub fn migrations(&self, known: usize, unreadable: usize) {
        self.migrations_known.set(i64::try_from(known).unwrap_or(i64::MAX));
        self.migrations_unreadable
            .set(i64::try_from(unreadable).unwrap_or(i64::MAX));
    }

    /// Sets whether a watch works, and counts its failures.
    pub fn watch(&self, watched: WatchedType, up: bool) {
        let labels = Watch {
            watch: LabelText(watched.as_str()),
        };
        self.watches_up.get_or_create(&labels).set(i64::from(up));
        if !up {
            self.watch_failures.get_or_create(&labels).inc();
        }
    }

    /// Sets the findings of the last check; kinds without findings are set to zero.
    pub fn missed(&self, counts: &HashMap<(&'static str, Deviation), i64>) {
        for kind in kinds() {
            for deviation in [Deviation::Missed, Deviation::Refused] {
                let labels = Missed {
                    kind: LabelText(kind.kind),
                    reason: LabelText(deviation.as_str()),
                };
                let count = counts.get(&(kind.kind, deviation)).copied().unwrap_or_default();
                self.objects_missed.get_or_create(&labels).set(count);
            }
        }
    }

    /// Sets the differences of a registration; fields without one are set to zero.
    pub fn registration(&self, configuration: Configuration, counts: &HashMap<Field, i64>) {
        for field in Field::ALL {
            let labels = Registered {
                kind: LabelText(configuration.kind()),
                registration: LabelText(configuration.name()),
                field: LabelText(field.as_str()),
            };
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
    const fn text(self) -> LabelText {
        LabelText(match self {
            Self::Admission => "admission",
            Self::Health => "health",
        })
    }
}

impl WatchedType {
    /// The label in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Migrations => "migrations",
            Self::Namespaces => "namespaces",
            Self::Lease => "lease",
            Self::Secret => "secret",
            Self::Registrations => "registrations",
        }
    }
}

/// A kind that has rules. Others share one label, because the caller chooses the kind.
fn known_kind(kind: &str) -> Option<&'static str> {
    kinds().find(|row| row.kind == kind).map(|row| row.kind)
}

fn known(words: &[&'static str], text: &str) -> Option<&'static str> {
    words.iter().copied().find(|known| *known == text)
}

#[derive(Debug)]
struct Connections {
    metrics: Arc<Metrics>,
    port: LabelText,
}

impl Connections {
    fn open(&self) -> Gauge {
        let port = Listener { port: self.port };
        self.metrics.connections.get_or_create_owned(&port)
    }

    const fn reason(&self, reason: &'static str) -> Reason {
        Reason {
            port: self.port,
            reason: LabelText(reason),
        }
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
        let labels = self.reason(reason.as_str());
        self.metrics.connections_ended.get_or_create(&labels).inc();
    }

    fn refused(&self, reason: Refused) {
        let labels = self.reason(reason.as_str());
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
