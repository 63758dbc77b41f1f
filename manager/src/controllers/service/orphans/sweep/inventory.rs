//! Lists AWS resources that may be orphaned. All resources of the account and region are listed, since an orphaned one
//! is known only by its name and tags. Tags are read only for names of our form.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use outrigger_aws::{Error, Filter, InstanceId, Tags};
use outrigger_shared::tags;

use super::super::super::context::Context;
use super::super::super::inventory::Aws;
use super::super::super::plan::targets::instance;
use super::super::super::settings::Settings;
use super::super::super::spec::names::is_load_balancer;
use super::decide::{Inventory, Resource, prefix};
use super::guards::{Finding, foreign_instances};

/// Fails with the first call that fails: an incomplete list proves nothing.
pub(super) async fn take(aws: &Aws, settings: &Settings) -> Result<Inventory, Error> {
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

    inventory.groups = aws
        .ec2
        .security_groups(&[Filter::new("vpc-id", [&settings.vpc_id])])
        .await?;

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
pub(super) async fn add_foreign(
    inventory: &mut Inventory,
    found: &[Finding],
    context: &Context,
    now: Timestamp,
) -> Result<(), Error> {
    let (aws, settings) = (&context.aws, &context.settings);
    let mut running = Vec::new();
    for tag in cluster_filters(settings) {
        running.extend(aws.ec2.running_instances(&settings.vpc_id, &tag).await?);
    }

    let registered = registered(aws, inventory, found).await?;
    let nodes = context.nodes.snapshot();
    let nodes: BTreeSet<InstanceId> = nodes.iter().filter_map(|node| instance(node)).collect();

    let all = registered.values().flatten();
    let others: BTreeSet<InstanceId> = all
        .filter(|id| is_instance(id) && !nodes.contains(*id))
        .cloned()
        .collect();
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

fn cluster_filters(settings: &Settings) -> Vec<Filter> {
    let mut filters = vec![Filter::new("tag-key", [tags::cluster_key(&settings.cluster_id)])];
    if settings.legacy_tags {
        let key = format!("tag:{}", tags::LEGACY_CLUSTER);
        filters.push(Filter::new(key, [&settings.cluster_id]));
    }
    filters
}

/// Targets of load balancers and target groups that look orphaned, by name and ARN.
async fn registered(
    aws: &Aws,
    inventory: &Inventory,
    found: &[Finding],
) -> Result<BTreeMap<String, BTreeSet<InstanceId>>, Error> {
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

async fn tags_of(aws: &Aws, arns: Vec<String>) -> Result<impl Fn(&str) -> Tags, Error> {
    let tags = if arns.is_empty() {
        BTreeMap::new()
    } else {
        unless_denied(aws, aws.elbv2.tags(&arns).await)?
    };
    Ok(move |arn: &str| tags.get(arn).cloned().unwrap_or_default())
}

/// If AWS denies reading tags, no resource counts as this cluster's: it is kept, and counts as in use.
fn unless_denied(aws: &Aws, answer: Result<BTreeMap<String, Tags>, Error>) -> Result<BTreeMap<String, Tags>, Error> {
    Ok(aws.tag_reads.allowed(answer)?.unwrap_or_default())
}
