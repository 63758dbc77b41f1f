//! Observes a network load balancer and its resources.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::elbv2::{Attributes, Listener, NetworkLoadBalancer, Target, TargetGroup, TargetHealth};
use outrigger_aws::{Error, InstanceId, Tags};

use super::super::model::network::{Existing, Group, Observed, OwnedResources};
use super::super::plan::targets::Candidate;
use super::super::settings::Settings;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::desired::network::{Desired, Groups, Port, target_group_names};
use super::super::spec::names::{
    self, Owner, SERVICE_TAG, TARGET_TYPE, TargetGroupNames, network_security_group, other_owner, target_group_of,
};
use super::account::Search;
use super::target_groups::{GroupOwner, unused};
use super::{Aws, Reader, group_by_name, groups_with_rules_of, node_groups, referencing, vpc};

/// The reason of a target that is being deregistered.
const LEAVING: &str = "Target.DeregistrationInProgress";

/// Reads the input of a plan. `given`: exact names of the Service's target groups so far.
pub async fn observe(
    reader: &Reader<'_>,
    desired: &Desired,
    settings: &Settings,
    candidates: &[Candidate],
    (search, given): (Search, &BTreeSet<String>),
) -> Result<Observed, Error> {
    let load_balancer = existing(reader, desired, search).await?;
    let mut observed = Observed {
        spare: spare(reader, desired, settings, load_balancer.as_ref(), (search, given)).await?,
        load_balancer,
        ..Observed::default()
    };

    observed.vpc = vpc(reader, &desired.subnets, settings, &observed.attached()).await?;
    if desired.groups != Groups::Kept {
        observed.own_group = group_by_name(reader, &settings.vpc_id, &desired.own_group.name).await?;
    }

    if let (Groups::Given(_), Some(own)) = (&desired.groups, &observed.own_group) {
        observed.referencing = referencing(reader, BTreeSet::from([own.id.clone()])).await?;
    }

    let ids: BTreeSet<InstanceId> = candidates.iter().map(|candidate| candidate.id.clone()).collect();
    observed.instances = reader.instances.look_up(&ids).await?;
    if !settings.disable_security_group_ingress {
        observed.groups = node_groups(reader, settings, &observed.instances).await?;
        // An untagged group is found through its Nodes, and not any more when the last of them is gone.
        if search != Search::Named || !observed.registered().is_subset(&ids) {
            let with_rules = groups_with_rules_of(reader, settings, &desired.name).await?;
            observed.groups.extend(with_rules);
        }
    }

    Ok(observed)
}

/// Reads the input of an update of targets.
pub async fn observe_targets(reader: &Reader<'_>, name: &str, candidates: &[Candidate]) -> Result<Observed, Error> {
    let elb = reader.elbv2.as_ref();
    let found = elb.load_balancers(&[name.to_owned()]).await?;
    let Some(described) = found.into_iter().find(|balancer| balancer.name == name) else {
        return Ok(Observed::default());
    };

    let mut groups = Vec::new();
    for used in elb.target_groups(&described.arn).await? {
        if used.target_type.as_deref().is_none_or(|kind| kind == TARGET_TYPE) {
            groups.push(Group {
                targets: staying(elb.target_health(&used.arn).await?),
                described: used,
                attributes: None,
            });
        }
    }

    let load_balancer = Existing {
        described,
        groups,
        ..Existing::default()
    };
    let ids = candidates.iter().map(|candidate| candidate.id.clone()).collect();
    Ok(Observed {
        load_balancer: Some(load_balancer),
        instances: reader.instances.look_up(&ids).await?,
        ..Observed::default()
    })
}

/// The resources of a Service's network load balancer.
///
/// Always searched for: the annotation may have changed, and after an interrupted deletion no load balancer leads to
/// the rest. `given`: exact names of the Service's target groups so far.
pub async fn owned_resources(
    aws: &Aws,
    service: &Service,
    settings: &Settings,
    nodes: &BTreeSet<InstanceId>,
    given: &BTreeSet<String>,
) -> Result<OwnedResources, Error> {
    let owner = Owner::of(service);
    let name = names::load_balancer(owner.uid);
    let reader = Reader::fresh(aws);
    let load_balancer = load_balancer(&reader, &name).await?;
    let mut owned = OwnedResources {
        name,
        load_balancer: load_balancer.map(|(balancer, _)| balancer.arn),
        ..OwnedResources::default()
    };
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let group_owner = GroupOwner {
        names: &TargetGroupNames::of(owner),
        given: &(given | &target_group_names(service, settings)),
        service_tag: &names::namespaced_name(service),
        cluster_tags: &cluster_tags,
        settings,
        balancer: None,
        gone: owned.load_balancer.is_none().then_some(owned.name.as_str()),
    };

    if let Some(arn) = &owned.load_balancer {
        let tags = aws.tag_reads.allowed(aws.elbv2.tags(std::slice::from_ref(arn)).await)?;
        owned.tags = tags.map(|mut tags| tags.remove(arn).unwrap_or_default());
    }

    // Target groups of another cluster's load balancer belong to that cluster.
    let other = other_owner(owned.tags.as_ref(), settings);
    if let Some(arn) = owned.load_balancer.as_ref().filter(|_| other.is_none()) {
        owned.target_groups = aws.elbv2.target_groups(arn).await?;
        owned.target_groups.retain(|group| group_owner.names.has(&group.name));
    }

    owned.target_groups.extend(unused(aws, group_owner, Search::Now).await?);
    if !settings.disable_security_group_ingress {
        let instances = aws.instances.look_up(nodes).await?;
        owned.groups = node_groups(&reader, settings, &instances).await?;
        let with_rules = groups_with_rules_of(&reader, settings, &owned.name).await?;
        owned.groups.extend(with_rules);
    }

    let own = network_security_group(&settings.cluster_name, owner);
    owned.own_group = group_by_name(&reader, &settings.vpc_id, &own).await?;

    let sources = owned.own_group.iter().map(|group| group.id.clone()).collect();
    owned.referencing = referencing(&reader, sources).await?;
    owned.listed = Annotations::of(service).list("security-groups").unwrap_or_default();

    Ok(owned)
}

/// A network load balancer. With its tags where many are described at once, so that one more call serves all of them,
/// and only after a start: that it belongs to this cluster is found out once.
/// Fails when the call failed, or the name belongs to a load balancer of another type.
async fn load_balancer(reader: &Reader<'_>, name: &str) -> Result<Option<(NetworkLoadBalancer, Option<Tags>)>, Error> {
    let all = || reader.shared.load_balancers(Kind::Network);
    let many = |names: Vec<String>| async move {
        let found = reader.elbv2.load_balancers(&names).await?;
        let arns: Vec<String> = found.iter().map(|found| found.arn.clone()).collect();
        let mut tags = match reader.reads_owners && reader.reads_tags && !arns.is_empty() {
            true => reader.tag_reads.allowed(reader.elbv2.tags(&arns).await)?,
            false => None,
        };
        let with_tags = found.into_iter().map(|found| {
            let of_it = tags.as_mut().map(|tags| tags.remove(&found.arn).unwrap_or_default());
            (found.name.clone(), (found, of_it))
        });

        Ok(with_tags.collect::<HashMap<_, _>>())
    };
    if let Some(ahead) = reader.shared.network.take(name, &reader.freshness, all, many).await {
        return Ok(ahead);
    }

    let found = reader.elbv2.load_balancers(&[name.to_owned()]).await?;
    let found = found.into_iter().find(|balancer| balancer.name == name);
    Ok(found.map(|balancer| (balancer, None)))
}

async fn existing(reader: &Reader<'_>, desired: &Desired, search: Search) -> Result<Option<Existing>, Error> {
    let (elb, facts, name) = (reader.elbv2.as_ref(), &reader.shared.facts, &desired.name);
    if let Some(mut known) = reader.remembers.then(|| facts.network(name)).flatten() {
        reader.freshness.note_older();
        known.attributes = reader.attributes(elb.attributes(&known.described.arn)).await?;
        for group in &mut known.groups {
            group.attributes = group_attributes(reader, desired, &group.described.arn).await?;
        }
        return Ok(Some(known));
    }
    let Some((described, tags)) = load_balancer(reader, name).await? else {
        facts.forget(name);
        return Ok(None);
    };

    let listeners = elb.listeners(&described.arn).await?;
    let used = used(reader, &described.arn, &listeners, search).await?;
    let existing = Existing {
        attributes: reader.attributes(elb.attributes(&described.arn)).await?,
        tags,
        groups: describe_fully(reader, desired, used).await?,
        listeners,
        described,
    };
    facts.put_network(name, Some(&existing));

    Ok(Some(existing))
}

/// The target groups of a load balancer and of its listeners: AWS may return one later than the other.
async fn used(
    reader: &Reader<'_>,
    arn: &str,
    listeners: &[Listener],
    search: Search,
) -> Result<Vec<TargetGroup>, Error> {
    let aws: &Aws = reader;
    let mut groups = if reader.freshness.is_cached && search == Search::Earlier {
        // All target groups are listed anyway, and after a start the list is shared.
        reader.freshness.note_older();
        let all = aws.target_groups.all(aws.elbv2.as_ref(), search).await?;
        let using = all.iter().filter(|group| group.load_balancers.contains(arn));
        using.cloned().collect()
    } else {
        aws.elbv2.target_groups(arn).await?
    };

    let forwarded = listeners.iter().filter_map(|l| l.settings.target_group_arn.as_deref());
    let is_known = |arn: &&str| groups.iter().any(|group| group.arn == *arn);
    let untold: BTreeSet<&str> = forwarded.filter(|arn| !is_known(arn)).collect();
    let names = untold.iter().filter_map(|arn| target_group_of(arn));
    let names: Vec<String> = names.map(str::to_owned).collect();

    if !names.is_empty() {
        let more = aws.elbv2.target_groups_named(&names).await?;
        groups.extend(more.into_iter().filter(|group| untold.contains(group.arn.as_str())));
    }

    Ok(groups)
}

async fn spare(
    reader: &Reader<'_>,
    desired: &Desired,
    settings: &Settings,
    existing: Option<&Existing>,
    (search, given): (Search, &BTreeSet<String>),
) -> Result<Vec<Group>, Error> {
    let served = |port: &&Port| existing.is_some_and(|existing| existing.serving(desired, port).is_some());
    let unserved = desired.ports.iter().filter(|port| !served(port));
    let names: Vec<String> = unserved.map(|port| port.target_group.name.clone()).collect();
    let mut found = match names.is_empty() {
        true => Vec::new(),
        false => reader.elbv2.target_groups_named(&names).await?,
    };

    if search != Search::Named {
        let group_owner = GroupOwner {
            names: &desired.target_groups,
            given,
            service_tag: desired.tags.get(SERVICE_TAG).map(String::as_str).unwrap_or_default(),
            cluster_tags: &desired.cluster_tags,
            settings,
            balancer: existing,
            gone: None,
        };
        found.extend(unused(reader, group_owner, search).await?);
    }

    let mut seen: BTreeSet<String> = existing.map(Existing::group_arns).unwrap_or_default();
    found.retain(|group| seen.insert(group.arn.clone()));

    describe_fully(reader, desired, found).await
}

async fn describe_fully(reader: &Reader<'_>, desired: &Desired, groups: Vec<TargetGroup>) -> Result<Vec<Group>, Error> {
    let elb = reader.elbv2.as_ref();
    let mut full = Vec::with_capacity(groups.len());

    for described in groups {
        let health = elb.target_health(&described.arn).await?;
        full.push(Group {
            targets: staying(health),
            attributes: group_attributes(reader, desired, &described.arn).await?,
            described,
        });
    }

    Ok(full)
}

async fn group_attributes(reader: &Reader<'_>, desired: &Desired, arn: &str) -> Result<Option<Attributes>, Error> {
    match desired.target_group_attributes {
        Some(_) => reader.attributes(reader.elbv2.target_group_attributes(arn)).await,
        None => Ok(None),
    }
}

fn staying(targets: Vec<TargetHealth>) -> BTreeSet<Target> {
    let targets = targets.into_iter();
    let staying = targets.filter(|target| target.reason.as_deref() != Some(LEAVING));
    staying.map(|health| health.target).collect()
}
