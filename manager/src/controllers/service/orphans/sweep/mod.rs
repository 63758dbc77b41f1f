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

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::Store;
use outrigger_aws::limit::Priority;
use outrigger_aws::{Error as AwsError, Filter, InstanceId, Tags};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::context::Context;
use super::super::error::Error;
use super::super::inventory::{Aws, cluster_filters};
use super::super::settings::Settings;
use super::super::spec::names::is_load_balancer;
use crate::args::Sweep;
use crate::confirmation::FirstSeen;
use crate::instances::claimed;
use crate::metrics::Metrics;
use decide::{Finding, Hold, Inventory, OrphanedResource, Resource, foreign_instances, prefix};

pub(crate) use decide::ExistingServices;

/// The first sweep runs this time after the start: resources that are just being created or deleted are not orphaned.
const FIRST_AFTER: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// `--load-balancer-sweep`.
    pub mode: Sweep,
    /// `--load-balancer-sweep-period`.
    pub period: Duration,
    pub metrics: SweepMetrics,
}

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

    #[cfg(test)]
    pub(crate) fn of(&self, kind: &str) -> i64 {
        let label = vec![("kind".to_owned(), kind.to_owned())];
        self.orphaned_resources.get_or_create(&label).get()
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

/// The findings of earlier sweeps.
#[derive(Debug, Default)]
pub(crate) struct LastSweep {
    seen: FirstSeen<OrphanedResource>,
    /// The verdicts of the last sweep, which are in the log.
    verdicts: BTreeMap<OrphanedResource, String>,
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
    for (uid, resources) in decide::other_uids(inventory, settings) {
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
        *found = LastSweep::default();
        return Ok(());
    }

    let mut inventory = list_resources(&context.aws, &context.settings).await?;
    let mut now = decide::findings(&inventory, existing, &context.settings);
    if !now.is_empty() {
        add_foreign(&mut inventory, &now, context, Timestamp::now()).await?;
        now = decide::findings(&inventory, existing, &context.settings);
    }

    let hold = decide::hold(&now, &inventory, existing);

    let orphaned_resources: Vec<&OrphanedResource> = now.iter().map(|finding| &finding.resource).collect();
    settings.metrics.tell(&orphaned_resources);
    report_other_clusters(&inventory, &context.settings);

    let verdict = |finding: &Finding| verdict(finding, hold.as_ref(), settings.mode);
    let verdicts = now.iter().map(|finding| (finding.resource.clone(), verdict(finding)));
    let verdicts: BTreeMap<OrphanedResource, String> = verdicts.collect();
    for (resource, verdict) in &verdicts {
        if found.verdicts.get(resource) != Some(verdict) {
            let (kind, id, of) = (resource.what.kind(), resource.what.id(), &resource.of);
            let text = "found orphaned AWS resource: its Service does not exist";
            tracing::warn!(kind, id, of, verdict, "{text}");
        }
    }

    found.verdicts = verdicts;
    found
        .seen
        .note_all(now.iter().map(|finding| finding.resource.clone()), Instant::now());

    match hold {
        Some(hold) => tracing::warn!(
            orphaned_resources = now.len(),
            "deleting no orphaned AWS resource: {hold}"
        ),
        None if settings.mode == Sweep::Delete => {
            let free = now.iter().filter(|finding| finding.kept.is_none());
            let is_repeated = |finding: &&Finding| found.seen.get(&finding.resource).is_some_and(|seen| seen.times > 1);
            let twice = free.filter(is_repeated);
            let twice: Vec<OrphanedResource> = twice.map(|finding| finding.resource.clone()).collect();
            delete::delete_resources(context, &inventory, &twice).await?;
        }
        None => {}
    }

    Ok(())
}

/// Lists AWS resources that may be orphaned. All resources of the account and region are listed, since an orphaned one
/// is known only by its name and tags. Tags are read only for names of our form.
/// Fails with the first call that fails: an incomplete list proves nothing.
async fn list_resources(aws: &Aws, settings: &Settings) -> Result<Inventory, AwsError> {
    let mut inventory = Inventory::default();
    let all = aws.elb.all().await?;
    let named = all.iter().filter(|lb| is_load_balancer(&lb.name));
    let names: Vec<String> = named.map(|lb| lb.name.clone()).collect();
    let mut tags = unless_denied(aws, aws.elb.tags_of_many(&names).await)?;

    inventory.classic = each_with(all, |lb| tags.remove(&lb.name).unwrap_or_default());

    let all = aws.elbv2.all_load_balancers().await?;
    let named = all.iter().filter(|lb| is_load_balancer(&lb.name));
    let tags = tags_of(aws, named.map(|lb| lb.arn.clone()).collect()).await?;

    inventory.network = each_with(all, |lb| tags(&lb.arn));

    let all = aws.elbv2.all_target_groups().await?;
    let named: Vec<_> = all.into_iter().filter(|group| prefix(&group.name).is_some()).collect();
    let tags = tags_of(aws, named.iter().map(|group| group.arn.clone()).collect()).await?;

    inventory.target_groups = each_with(named, |group| tags(&group.arn));

    let of_vpc = [Filter::new("vpc-id", [&settings.vpc_id])];
    inventory.groups = aws.ec2.security_groups(&of_vpc).await?;

    Ok(inventory)
}

fn each_with<T>(all: Vec<T>, mut tags: impl FnMut(&T) -> Tags) -> Vec<(T, Tags)> {
    let pair = |one: T| {
        let of_it = tags(&one);
        (one, of_it)
    };
    all.into_iter().map(pair).collect()
}

/// Reads possible other users: registered targets, and instances of the cluster. Both are compared with the Nodes read
/// afterwards, since instances join all the time.
async fn add_foreign(
    inventory: &mut Inventory,
    found: &[Finding],
    context: &Context,
    now: Timestamp,
) -> Result<(), AwsError> {
    let (aws, settings) = (&context.aws, &context.settings);
    let mut running = Vec::new();
    for tag in cluster_filters(settings) {
        running.extend(aws.ec2.running_instances(&settings.vpc_id, &tag).await?);
    }

    let registered = registered(aws, inventory, found).await?;
    let nodes = context.nodes.snapshot();
    let nodes: BTreeSet<InstanceId> = nodes.iter().filter_map(|node| claimed(node)).collect();

    let others = registered.values().flatten();
    let others = others.filter(|id| is_instance(id) && !nodes.contains(*id));
    let others = others.cloned().collect();
    let known = aws.instances.look_up(&others).await?;
    let living = known.into_iter().filter(|(_, instance)| instance.living);
    let living: BTreeSet<InstanceId> = living.map(|(id, _)| id).collect();

    inventory.foreign_instances = foreign_instances(&running, &nodes, now);

    // An address is not known to be a Node's.
    let is_foreign = |id: &&InstanceId| living.contains(*id) || !is_instance(id);
    for (of, targets) in registered {
        let foreign = targets.iter().filter(is_foreign).map(ToString::to_string).collect();
        inventory.foreign_targets.insert(of, foreign);
    }

    Ok(())
}

fn is_instance(target: &InstanceId) -> bool {
    target.as_str().starts_with("i-")
}

/// Targets of load balancers and target groups that look orphaned, by name and ARN.
async fn registered(
    aws: &Aws,
    inventory: &Inventory,
    found: &[Finding],
) -> Result<BTreeMap<String, BTreeSet<InstanceId>>, AwsError> {
    let mut registered: BTreeMap<String, BTreeSet<InstanceId>> = BTreeMap::new();
    for Finding { resource, .. } in found {
        let id = resource.what.id();
        let mut groups = Vec::new();
        match &resource.what {
            Resource::Classic(name) => {
                let of_name = inventory.classic.iter().filter(|(lb, _)| lb.name == *name);
                let targets = of_name.flat_map(|(lb, _)| lb.instances.iter().cloned());
                registered.entry(id.clone()).or_default().extend(targets);
            }
            Resource::Network(arn) => {
                let used = aws.elbv2.target_groups(arn).await?;
                groups.extend(used.into_iter().map(|group| group.arn));
            }
            Resource::TargetGroup(arn) => groups.push(arn.clone()),
            Resource::Rules(..) | Resource::Group(_) => {}
        }

        for group in groups {
            let targets = aws.elbv2.target_health(&group).await?.into_iter();
            let of = registered.entry(id.clone()).or_default();
            of.extend(targets.map(|health| health.target.id));
        }
    }

    Ok(registered)
}

async fn tags_of(aws: &Aws, arns: Vec<String>) -> Result<impl Fn(&str) -> Tags, AwsError> {
    let tags = if arns.is_empty() {
        BTreeMap::new()
    } else {
        unless_denied(aws, aws.elbv2.tags(&arns).await)?
    };
    Ok(move |arn: &str| tags.get(arn).cloned().unwrap_or_default())
}

/// If AWS denies reading tags, no resource counts as this cluster's: it is kept, and counts as in use.
fn unless_denied(
    aws: &Aws,
    answer: Result<BTreeMap<String, Tags>, AwsError>,
) -> Result<BTreeMap<String, Tags>, AwsError> {
    Ok(aws.tag_reads.allowed(answer)?.unwrap_or_default())
}
