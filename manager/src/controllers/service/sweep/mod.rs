//! The sweep: what was made for Services at AWS and is left over without one.
//!
//! Deletion holds a Service until nothing of it is left, so that a leftover comes from elsewhere: from another provider
//! that ran before, from a Service whose finalizer was taken away by force, from a hand. The sweep tells of it, and
//! deletes it where it is asked to:
//!
//! ```text
//! Services (all of them) ─▶ living ┐
//! AWS (reads) ─────────▶ inventory ┴▶ decide (pure) ─▶ log, metric ─▶ delete, what two sweeps have found
//! ```

mod decide;
mod delete;
mod inventory;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::Store;
use outrigger_aws::limit::Lane;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::sync::Reconciler;
use crate::args::Sweep;
use crate::metrics::Metrics;
use decide::{Leftover, What};

pub(super) use decide::Living;

/// How long after a start the first search is made: what is being made or deleted just then is no leftover.
const FIRST: Duration = Duration::from_secs(300);

/// How the sweep is to work.
#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// What is done with what is found (`--load-balancer-sweep`).
    pub mode: Sweep,
    /// Time between two searches (`--load-balancer-sweep-period`).
    pub period: Duration,
    /// Counts what is found.
    pub metrics: SweepMetrics,
}

/// How much is left over, by kind.
#[derive(Debug, Clone, Default)]
pub struct SweepMetrics {
    leftovers: Family<Vec<(String, String)>, Gauge>,
}

impl SweepMetrics {
    /// Registers it; once in a process.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.with_registry(|r| {
            r.family(
                "outrigger_load_balancer_leftovers",
                &["kind"],
                "Things at AWS that were made for Services which are gone, at the last search",
                own.leftovers.clone(),
            );
        });
        own
    }

    /// The number of one kind.
    #[cfg(test)]
    pub(super) fn of(&self, kind: &str) -> i64 {
        self.leftovers
            .get_or_create(&vec![("kind".to_owned(), kind.to_owned())])
            .get()
    }

    fn tell(&self, found: &[Leftover]) {
        for kind in What::KINDS {
            let number = found.iter().filter(|leftover| leftover.what.kind() == kind).count();
            let label = vec![("kind".to_owned(), kind.to_owned())];
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            self.leftovers.get_or_create(&label).set(number);
        }
    }
}

/// What earlier searches have found.
#[derive(Debug, Default)]
pub(super) struct Found {
    before: BTreeSet<Leftover>,
}

/// Searches until `stop`.
pub(super) async fn watch(
    reconciler: &Reconciler,
    settings: &SweepSettings,
    services: &Store<Service>,
    stop: &CancellationToken,
) {
    if settings.mode == Sweep::Off {
        return;
    }
    let (mut found, mut pause) = (Found::default(), FIRST.min(settings.period));
    while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        pause = settings.period;
        let living = Living::of(services.state().iter().map(AsRef::as_ref));
        let sweep = reconciler.sweep(settings, &living, &mut found);
        match Lane::Background.run(sweep).await {
            Ok(()) | Err(Error::NotLeader(_)) => {}
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    error,
                    "leftovers of Services at AWS cannot be looked for; it is tried again"
                );
            }
        }
    }
}

impl Reconciler {
    /// One search, and the deletion of what this and the last one have found.
    pub(super) async fn sweep(
        &self,
        settings: &SweepSettings,
        living: &Living,
        found: &mut Found,
    ) -> Result<(), Error> {
        if !living.is_complete() {
            tracing::warn!(
                "the Service default/kubernetes is not listed: leftovers are not looked for without all Services"
            );
            found.before.clear();
            return Ok(());
        }
        let inventory = inventory::take(&self.aws, &self.settings).await?;
        let now = decide::leftovers(&inventory, living, &self.settings);
        settings.metrics.tell(&now);
        for leftover in now.iter().filter(|leftover| !found.before.contains(leftover)) {
            let (kind, id) = (leftover.what.kind(), leftover.what.id());
            tracing::warn!(
                kind,
                id,
                of = leftover.of,
                "left over at AWS: its Service does not exist"
            );
        }
        let twice: Vec<Leftover> = now
            .iter()
            .filter(|leftover| found.before.contains(leftover))
            .cloned()
            .collect();
        if settings.mode == Sweep::Delete && decide::is_sudden(&now, &inventory, &self.settings) {
            tracing::error!(
                leftovers = now.len(),
                "more than a fifth of the cluster's load balancers look left over: none is deleted; if their Services are \
                 really gone, delete them by hand"
            );
        } else if settings.mode == Sweep::Delete {
            self.delete_leftovers(&inventory, &twice).await?;
        }
        found.before = now.into_iter().collect();
        Ok(())
    }
}
