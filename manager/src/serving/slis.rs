//! `/metrics/slis`: what the health checks said, so that one can count how often they failed between two looks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Catalog, prometheus_text};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    name: String,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    name: String,
    r#type: &'static str,
    status: &'static str,
}

/// Results of health checks. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Slis {
    catalog: Arc<Mutex<Catalog>>,
    last: Family<CheckLabels, Gauge>,
    all: Family<ResultLabels, Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let (mut catalog, last, all) = (Catalog::default(), Family::default(), Family::default());
        catalog.family(
            "kubernetes_healthcheck",
            &["name", "type"],
            "Whether the check passed at the last probe",
            Family::clone(&last),
        );
        catalog.family(
            "kubernetes_healthchecks",
            &["name", "type", "status"],
            "Results of the checks",
            Family::clone(&all),
        );
        Self {
            catalog: Arc::new(Mutex::new(catalog)),
            last,
            all,
        }
    }
}

impl Slis {
    /// A check has been asked by the probe at this path.
    pub(super) fn observe(&self, name: &str, path: &'static str, passed: bool) {
        let labels = CheckLabels {
            name: name.to_owned(),
            r#type: path,
        };
        self.last.get_or_create(&labels).set(i64::from(passed));

        let labels = ResultLabels {
            name: name.to_owned(),
            r#type: path,
            status: if passed { "success" } else { "error" },
        };

        self.all.get_or_create(&labels).inc();
    }

    /// Forgets everything.
    pub(super) fn reset(&self) {
        self.last.clear();
        self.all.clear();
    }

    /// As text, in Prometheus' format.
    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        prometheus_text(&self.catalog.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
