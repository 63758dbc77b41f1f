//! The registered metrics: served at `/metrics`, listed in `docs/metrics.md`.

use std::fmt::Write as _;

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

const INTRODUCTION: &str = "# Metrics of outrigger-manager

Written from the registry in `manager/src/metrics/`; after a change run
`UPDATE_DOCS=1 cargo test -p outrigger-manager --test metrics`.

`/metrics` serves Prometheus' text format 0.0.4, as the incumbent does, or OpenMetrics to a scraper that prefers it.
The column `whose` names the origin: the incumbent's metrics have the names, labels and meaning of
aws-cloud-controller-manager v1.37, and their histograms keep its bounds and add finer ones. Differences are listed in
[parity.md](parity.md). A metric with labels appears with its first value.

";

/// The incumbent has this one as `inital` only.
const RESPELT: &str = "tagging_controller_initial_node_tagging_delay_seconds";

#[derive(Debug, Clone)]
pub struct Row {
    name: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    help: &'static str,
}

impl Row {
    /// The name of its samples, without the suffixes of a histogram.
    pub fn name(&self) -> String {
        match self.kind {
            MetricType::Counter => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }

    pub fn labels(&self) -> &'static [&'static str] {
        self.labels
    }

    /// The type in Prometheus' text format.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            MetricType::Counter | MetricType::Unknown => "counter",
            MetricType::Histogram => "histogram",
            MetricType::Gauge | MetricType::Info => "gauge",
        }
    }
}

/// A registry with the list of its metrics, including families that have no value yet and are not served.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(super) registry: Registry,
    rows: Vec<Row>,
}

impl Catalog {
    /// Adds a metric without labels, and returns it. The name of a counter is given without `_total`.
    pub fn single<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        self.family(name, &[], help, M::default())
    }

    /// Adds a histogram without labels, and returns it.
    pub fn histogram(&mut self, name: &'static str, help: &'static str, bounds: Vec<f64>) -> Histogram {
        self.family(name, &[], help, Histogram::new(bounds))
    }

    /// Adds a metric with labels, and returns it.
    pub fn labelled<M: Metric + Clone + Default>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> M {
        self.family(name, labels, help, M::default())
    }

    /// Adds this metric, and returns it.
    pub fn family<M: Metric + Clone>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        self.rows.push(Row {
            name,
            kind: metric.metric_type(),
            labels,
            help,
        });
        self.registry.register(name, help, metric.clone());

        metric
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The text of `docs/metrics.md`, sorted by name.
    pub fn markdown(&self) -> String {
        let mut out = String::from(INTRODUCTION);
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.name());
        out.push_str("| metric | type | labels | whose | meaning |\n|---|---|---|---|---|\n");
        for row in rows {
            let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let whose = if row.name.starts_with("outrigger_") || row.name == RESPELT {
                "ours"
            } else if row.name.starts_with("node_ipam_controller_") {
                "kube-controller-manager's"
            } else {
                "the incumbent's"
            };
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {whose} | {} |",
                row.name(),
                row.kind(),
                labels.join(", "),
                row.help.replace('|', "\\|")
            );
        }

        out
    }
}
