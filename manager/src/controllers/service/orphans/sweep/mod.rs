//! The sweep finds AWS resources of Services that do not exist any more.
//!
//! A deletion keeps the finalizer until nothing is left, so orphaned resources come from elsewhere: an earlier
//! provider, a finalizer that was removed by force, or manual changes. The sweep logs and counts them, and deletes them
//! if configured:
//!
//! ```text
//! Services (all of them) ─▶ living ┐
//! AWS (reads) ─────────▶ inventory ┴▶ decide (pure) ─▶ log, metric ─▶ delete, what two sweeps have found
//! ```
//!
//! Another cluster may have the same cluster ID in the same VPC: many clusters are called `kubernetes`. The cluster tag
//! does not tell them apart, so four other facts count: the UID of the cluster in a tag, running instances of the
//! cluster that are not Nodes, targets that are not Nodes, and the number of load balancers that have a Service. Each
//! fact can only keep a resource.

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

use super::super::context::Context;
use super::super::error::Error;
use super::super::settings::Settings;
use crate::args::Sweep;
use crate::metrics::Metrics;
use decide::{Inventory, OrphanedResource, Resource};
use guards::{Finding, Hold};

pub(crate) use decide::ExistingServices;

/// The first sweep runs this time after the start: resources that are just being created or deleted are not orphaned.
const FIRST_AFTER: Duration = Duration::from_secs(300);

/// Settings of the sweep.
#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// `--load-balancer-sweep`.
    pub mode: Sweep,
    /// `--load-balancer-sweep-period`.
    pub period: Duration,
    pub metrics: SweepMetrics,
}

/// Number of orphaned resources by kind.
#[derive(Debug, Clone, Default)]
pub struct SweepMetrics {
    orphaned_resources: Family<Vec<(String, String)>, Gauge>,
}

impl SweepMetrics {
    /// Registers the metric, once per process.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.with_registry(|r| {
            r.family(
                "outrigger_load_balancer_leftovers",
                &["kind"],
                "Orphaned AWS resources, whose Service no longer exists, at the last search",
                own.orphaned_resources.clone(),
            );
        });

        own
    }

    /// The number of one kind.
    #[cfg(test)]
    pub(crate) fn of(&self, kind: &str) -> i64 {
        self.orphaned_resources
            .get_or_create(&vec![("kind".to_owned(), kind.to_owned())])
            .get()
    }

    fn tell(&self, found: &[&OrphanedResource]) {
        for kind in Resource::KINDS {
            let number = found.iter().filter(|resource| resource.what.kind() == kind).count();
            let label = vec![("kind".to_owned(), kind.to_owned())];
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            self.orphaned_resources.get_or_create(&label).set(number);
        }
    }
}

/// The findings of the last sweep with their verdicts.
#[derive(Debug, Default)]
pub(crate) struct LastSweep {
    before: BTreeMap<OrphanedResource, String>,
}

impl LastSweep {
    /// Logs each resource that is new or has another verdict than before.
    fn log_changes(&self, verdicts: &BTreeMap<OrphanedResource, String>) {
        for (resource, verdict) in verdicts {
            if self.before.get(resource) != Some(verdict) {
                let (kind, id, of) = (resource.what.kind(), resource.what.id(), &resource.of);
                tracing::warn!(
                    kind,
                    id,
                    of,
                    verdict,
                    "found orphaned AWS resource: its Service does not exist"
                );
            }
        }
    }
}

/// The verdict for the log: deleted, or the reason why it is kept.
fn verdict(finding: &Finding, hold: Option<&Hold>, mode: Sweep) -> String {
    match (&finding.kept, hold, mode) {
        (Some(kept), ..) => format!("kept: it {kept}"),
        (None, Some(Hold::ForeignInstances(_)), _) => "kept: another cluster may have the same cluster ID".to_owned(),
        (None, Some(Hold::MassLoss { .. }), _) => "kept: mass loss".to_owned(),
        (None, None, Sweep::Delete) => "deleted when two searches have found it".to_owned(),
        (None, None, _) => "--load-balancer-sweep=delete would delete it when two searches have found it".to_owned(),
    }
}

/// A resource of a cluster with the same ID and another UID is not this cluster's, and shows that two clusters share
/// the ID.
fn report_other_clusters(inventory: &Inventory, settings: &Settings) {
    for (uid, resources) in guards::other_uids(inventory, settings) {
        tracing::warn!(
            uid,
            resources,
            "AWS resources have this cluster's ID and the UID of another cluster: give each cluster an ID of its own; these \
             resources stay unchanged"
        );
    }
}

pub(crate) async fn watch(
    context: &Context,
    settings: &SweepSettings,
    services: &Store<Service>,
    stop: &CancellationToken,
) {
    if settings.mode == Sweep::Off {
        return;
    }

    let (mut found, mut pause) = (LastSweep::default(), FIRST_AFTER.min(settings.period));
    while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        pause = settings.period;

        let existing = ExistingServices::of(services.state().iter().map(AsRef::as_ref));
        let sweep = sweep(context, settings, &existing, &mut found);
        match Priority::Background.run(sweep).await {
            Ok(()) | Err(Error::NotLeader(_)) => {}
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    error,
                    "cannot search for orphaned AWS resources; the next sweep retries"
                );
            }
        }
    }
}

/// One sweep. Deletes resources that this and the last sweep have found.
pub(crate) async fn sweep(
    context: &Context,
    settings: &SweepSettings,
    existing: &ExistingServices,
    found: &mut LastSweep,
) -> Result<(), Error> {
    if !existing.is_complete() {
        tracing::warn!(
            "Service default/kubernetes is not listed: skipping the sweep without a complete list of Services"
        );
        found.before.clear();
        return Ok(());
    }

    let mut inventory = inventory::take(&context.aws, &context.settings).await?;
    let mut now = decide::findings(&inventory, existing, &context.settings);
    if !now.is_empty() {
        inventory::add_foreign(&mut inventory, &now, context, Timestamp::now()).await?;
        now = decide::findings(&inventory, existing, &context.settings);
    }

    let hold = guards::hold(&now, &inventory, existing);

    let orphaned_resources: Vec<&OrphanedResource> = now.iter().map(|finding| &finding.resource).collect();
    settings.metrics.tell(&orphaned_resources);
    report_other_clusters(&inventory, &context.settings);

    let verdicts: BTreeMap<OrphanedResource, String> = now
        .iter()
        .map(|finding| (finding.resource.clone(), verdict(finding, hold.as_ref(), settings.mode)))
        .collect();
    found.log_changes(&verdicts);

    match hold {
        Some(hold) => tracing::warn!(
            orphaned_resources = now.len(),
            "deleting no orphaned AWS resource: {hold}"
        ),
        None if settings.mode == Sweep::Delete => {
            let free = now.iter().filter(|finding| finding.kept.is_none());
            let twice = free.filter(|finding| found.before.contains_key(&finding.resource));
            let twice: Vec<OrphanedResource> = twice.map(|finding| finding.resource.clone()).collect();
            delete::delete_resources(context, &inventory, &twice).await?;
        }
        None => {}
    }

    found.before = verdicts;

    Ok(())
}
