//! Named health checks, and the responses to probes.

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use super::slis::Slis;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of this process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<Vec<Named>>>,
    slis: Slis,
}

#[derive(Clone)]
struct Named {
    name: String,
    readiness_only: bool,
    check: Check,
}

/// Which probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    /// `/healthz`, `/livez`: should this process be restarted?
    Alive,
    /// `/readyz`: has it everything it needs?
    Ready,
}

/// The outcome of a probe.
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

    /// Adds a check to `/readyz` only.
    pub fn register_readiness(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name.into(), true, Arc::new(check));
    }

    /// Takes the check of this name away.
    pub fn remove(&self, name: &str) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        checks.retain(|old| old.name != name);
    }

    /// The results of the checks, as metrics.
    pub(super) fn slis(&self) -> &Slis {
        &self.slis
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
