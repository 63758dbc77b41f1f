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
//!
//! Another cluster may have the same cluster ID in the same VPC: many clusters are called `kubernetes`. The cluster tag does not
//! tell them apart, so four other facts count: the UID of the cluster in a tag, running instances of the cluster that are not
//! Nodes, targets that are not Nodes, and the number of load balancers that have a Service. Each fact can only keep a resource.

mod decide;
mod delete;
mod guards;
mod inventory;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::Store;
use outrigger_aws::limit::Priority;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::settings::Settings;
use super::sync::Reconciler;
use crate::args::Sweep;
use crate::metrics::Metrics;
use decide::{Inventory, Leftover, What};
use guards::{Finding, Hold};

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

    fn tell(&self, found: &[&Leftover]) {
        for kind in What::KINDS {
            let number = found.iter().filter(|leftover| leftover.what.kind() == kind).count();
            let label = vec![("kind".to_owned(), kind.to_owned())];
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            self.leftovers.get_or_create(&label).set(number);
        }
    }
}

/// What the last search has found, each with its verdict.
#[derive(Debug, Default)]
pub(super) struct Found {
    before: BTreeMap<Leftover, String>,
}

impl Found {
    /// Logs each leftover that is new or has another verdict than before.
    fn log_changes(&self, verdicts: &BTreeMap<Leftover, String>) {
        for (leftover, verdict) in verdicts {
            if self.before.get(leftover) != Some(verdict) {
                let (kind, id, of) = (leftover.what.kind(), leftover.what.id(), &leftover.of);
                tracing::warn!(kind, id, of, verdict, "left over at AWS: its Service does not exist");
            }
        }
    }
}

/// The verdict on a leftover, for the log: it is deleted, or the reason why it is kept.
fn verdict(finding: &Finding, hold: Option<&Hold>, mode: Sweep) -> String {
    match (&finding.kept, hold, mode) {
        (Some(kept), ..) => format!("kept: it {kept}"),
        (None, Some(Hold::ForeignInstances(_)), _) => "kept: another cluster may have the same cluster ID".to_owned(),
        (None, Some(Hold::MassLoss { .. }), _) => "kept: mass loss".to_owned(),
        (None, None, Sweep::Delete) => "deleted when two searches have found it".to_owned(),
        (None, None, _) => "--load-balancer-sweep=delete would delete it when two searches have found it".to_owned(),
    }
}

/// A resource of a cluster with the same ID and another UID is not this cluster's, and shows that two clusters share the ID.
fn report_other_clusters(inventory: &Inventory, settings: &Settings) {
    for (uid, resources) in guards::other_uids(inventory, settings) {
        tracing::warn!(
            uid,
            resources,
            "resources at AWS have this cluster's ID and the UID of another cluster: give each cluster an ID of its own; they are \
             not touched"
        );
    }
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
        match Priority::Background.run(sweep).await {
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
        let mut inventory = inventory::take(&self.aws, &self.settings).await?;
        let mut now = decide::findings(&inventory, living, &self.settings);
        if !now.is_empty() {
            inventory::add_foreign(&mut inventory, &now, self, Timestamp::now()).await?;
            now = decide::findings(&inventory, living, &self.settings);
        }
        let hold = guards::hold(&now, &inventory, living);

        let leftovers: Vec<&Leftover> = now.iter().map(|finding| &finding.leftover).collect();
        settings.metrics.tell(&leftovers);
        report_other_clusters(&inventory, &self.settings);
        let verdicts: BTreeMap<Leftover, String> = now
            .iter()
            .map(|finding| (finding.leftover.clone(), verdict(finding, hold.as_ref(), settings.mode)))
            .collect();
        found.log_changes(&verdicts);

        match hold {
            Some(hold) => tracing::warn!(leftovers = now.len(), "nothing left over at AWS is deleted: {hold}"),
            None if settings.mode == Sweep::Delete => {
                let free = now.iter().filter(|finding| finding.kept.is_none());
                let twice = free.filter(|finding| found.before.contains_key(&finding.leftover));
                let twice: Vec<Leftover> = twice.map(|finding| finding.leftover.clone()).collect();
                self.delete_leftovers(&inventory, &twice).await?;
            }
            None => {}
        }
        found.before = verdicts;
        Ok(())
    }
}
