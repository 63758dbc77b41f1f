//! Named health checks, and the responses to probes.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Catalog, prometheus_text};

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of this process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<Vec<Named>>>,
    pub(super) slis: Slis,
}

#[derive(Clone)]
struct Named {
    name: String,
    readiness_only: bool,
    check: Check,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    /// `/healthz`, `/livez`: should this process be restarted?
    Alive,
    /// `/readyz`: has it everything it needs?
    Ready,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) healthy: bool,
    /// One line per check. Reasons are only logged, not sent to the client.
    pub(super) lines: String,
}

impl Health {
    /// Adds a check to all probes, or replaces the check of that name. It must not block.
    pub fn register(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.add(name.into(), false, Arc::new(check));
    }

    pub fn register_readiness(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name.into(), true, Arc::new(check));
    }

    pub fn remove(&self, name: &str) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        checks.retain(|old| old.name != name);
    }

    fn add(&self, name: String, readiness_only: bool, check: Check) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        checks.retain(|old| old.name != name);
        checks.push(Named {
            name,
            readiness_only,
            check,
        });
    }

    /// Runs the checks of the probe at `path`, but those excluded.
    pub(super) fn report(&self, probe: Probe, path: &'static str, excluded: &[String]) -> Report {
        let mut report = Report {
            healthy: true,
            lines: String::new(),
        };
        for named in self.of(probe) {
            let name = &named.name;
            let line = if excluded.contains(name) {
                format!("[+]{name} excluded: ok")
            } else {
                let result = (named.check)();
                self.slis.observe(name, path, result.is_ok());
                match result {
                    Ok(()) => format!("[+]{name} ok"),
                    Err(reason) => {
                        tracing::warn!(check = name, reason, "a health check failed");
                        report.healthy = false;
                        format!("[-]{name} failed: reason withheld")
                    }
                }
            };

            let _ = writeln!(report.lines, "{line}");
        }

        report
    }

    /// Runs one check; `None` when no check has this name.
    pub(super) fn one(&self, probe: Probe, name: &str) -> Option<Result<(), String>> {
        self.of(probe)
            .into_iter()
            .find(|named| named.name == name)
            .map(|named| (named.check)())
    }

    fn of(&self, probe: Probe) -> Vec<Named> {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        checks
            .iter()
            .filter(|named| probe == Probe::Ready || !named.readiness_only)
            .cloned()
            .collect()
    }
}

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

/// `/metrics/slis`: what the health checks said, so that one can count how often they failed between two looks. Clones
/// share them.
#[derive(Debug, Clone)]
pub(super) struct Slis {
    catalog: Arc<Mutex<Catalog>>,
    last: Family<CheckLabels, Gauge>,
    all: Family<ResultLabels, Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let mut catalog = Catalog::default();
        Self {
            last: catalog.labelled(
                "kubernetes_healthcheck",
                &["name", "type"],
                "Whether the check passed at the last probe",
            ),
            all: catalog.labelled(
                "kubernetes_healthchecks",
                &["name", "type", "status"],
                "Results of the checks",
            ),
            catalog: Arc::new(Mutex::new(catalog)),
        }
    }
}

impl Slis {
    fn observe(&self, name: &str, path: &'static str, passed: bool) {
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

    pub(super) fn reset(&self) {
        self.last.clear();
        self.all.clear();
    }

    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        prometheus_text(&self.catalog.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
