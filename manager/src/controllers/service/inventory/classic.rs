//! Observes a classic load balancer and its resources.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elb::LoadBalancer;
use outrigger_aws::{Error, InstanceId};

use super::super::model::NodeInstance;
use super::super::model::classic::{Existing, KnownTags, Observed, OwnedResources};
use super::super::plan::targets::Candidate;
use super::super::settings::Settings;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::desired::classic::{Desired, Groups};
use super::super::spec::names::{self, uid};
use super::{Aws, Reader, group_by_name, groups_by_id, referencing, vpc};

pub async fn observe(
    reader: &Reader<'_>,
    desired: &Desired,
    settings: &Settings,
    candidates: &[Candidate],
) -> Result<Observed, Error> {
    let mut observed = Observed {
        load_balancer: existing(reader, &desired.name).await?,
        own_group: group_by_name(reader, &settings.vpc_id, &desired.own_group.name).await?,
        ..Observed::default()
    };

    observed.vpc = vpc(reader, &desired.subnets, settings, &observed.attached()).await?;
    observed.instances = reader.instances.look_up(&ids(candidates)).await?;
    if !settings.disable_security_group_ingress {
        observed.groups = groups_by_id(reader, of_instances(&observed.instances)).await?;
        observed.referencing = referencing(reader, sources(desired, observed.own_group.as_ref())).await?;
    }

    Ok(observed)
}

/// Reads the input of an update of targets.
pub async fn observe_targets(
    reader: &Reader<'_>,
    name: &str,
    settings: &Settings,
    candidates: &[Candidate],
) -> Result<Observed, Error> {
    let Some(described) = reader.elb.describe(name).await? else {
        return Ok(Observed::default());
    };

    let mut observed = Observed {
        load_balancer: Some(Existing {
            described,
            ..Existing::default()
        }),
        ..Observed::default()
    };

    observed.instances = reader.instances.look_up(&ids(candidates)).await?;
    if !settings.disable_security_group_ingress {
        observed.own_group = group_by_name(reader, &settings.vpc_id, &names::security_group(name)).await?;
        observed.groups = groups_by_id(reader, of_instances(&observed.instances)).await?;
    }

    Ok(observed)
}

pub async fn owned_resources(aws: &Aws, service: &Service, settings: &Settings) -> Result<OwnedResources, Error> {
    let name = &names::load_balancer(uid(service));
    let load_balancer = aws.elb.describe(name).await?.is_some();
    let tags = match load_balancer {
        true => aws.tag_reads.allowed(aws.elb.describe_tags(name).await)?,
        false => None,
    };
    let group = names::security_group(name);
    let reader = Reader::fresh(aws);
    let own_group = group_by_name(&reader, &settings.vpc_id, &group).await?;
    let sources: BTreeSet<String> = own_group.iter().map(|group| group.id.clone()).collect();
    let referencing = referencing(&reader, sources).await?;
    let annotations = Annotations::of(service);
    let lists = [
        annotations.list("security-groups"),
        annotations.list("extra-security-groups"),
    ];

    Ok(OwnedResources {
        load_balancer,
        tags,
        own_group,
        referencing,
        listed: lists.into_iter().flatten().flatten().collect(),
    })
}

fn ids(candidates: &[Candidate]) -> BTreeSet<InstanceId> {
    candidates.iter().map(|candidate| candidate.id.clone()).collect()
}

fn of_instances(instances: &BTreeMap<InstanceId, NodeInstance>) -> BTreeSet<String> {
    let groups = instances.values().flat_map(|instance| &instance.security_groups);
    groups.cloned().collect()
}

/// A classic load balancer and its tags, as far as they may be read.
async fn load_balancer(reader: &Reader<'_>, name: &str) -> Result<Option<(LoadBalancer, KnownTags)>, Error> {
    let all = || reader.shared.load_balancers(Kind::Classic);
    let many = |names: Vec<String>| async move {
        let found = reader.elb.describe_many(&names).await?;
        let names: Vec<String> = found.iter().map(|found| found.name.clone()).collect();
        let mut tags = reader.tag_reads.allowed(reader.elb.tags_of_many(&names).await)?;
        let with_tags = found.into_iter().map(|found| {
            let of_it = tags.as_mut().map(|tags| tags.remove(&found.name).unwrap_or_default());
            (found.name.clone(), (found, KnownTags::of(of_it)))
        });

        Ok(with_tags.collect::<HashMap<_, _>>())
    };
    if let Some(ahead) = reader.shared.classic.take(name, &reader.freshness, all, many).await {
        return Ok(ahead);
    }
    let Some(described) = reader.elb.describe(name).await? else {
        return Ok(None);
    };

    let tags = reader.tag_reads.allowed(reader.elb.describe_tags(name).await)?;
    Ok(Some((described, KnownTags::of(tags))))
}

async fn existing(reader: &Reader<'_>, name: &str) -> Result<Option<Existing>, Error> {
    let facts = &reader.shared.facts;
    if let Some(mut known) = reader.remembers.then(|| facts.classic(name)).flatten() {
        reader.freshness.note_older();
        known.attributes = reader.attributes(reader.elb.attributes(name)).await?;
        return Ok(Some(known));
    }

    let existing = match load_balancer(reader, name).await? {
        Some((described, tags)) => Some(Existing {
            described,
            attributes: reader.attributes(reader.elb.attributes(name)).await?,
            tags,
        }),
        None => None,
    };
    facts.put_classic(name, existing.as_ref());

    Ok(existing)
}

/// The load balancer's groups in rules of the Nodes' groups, now or before the annotations changed.
fn sources(desired: &Desired, own: Option<&SecurityGroup>) -> BTreeSet<String> {
    let mut sources: BTreeSet<String> = own.map(|group| group.id.clone()).into_iter().collect();
    if let Groups::Given(given) = &desired.groups {
        sources.extend(given.first().cloned());
    }
    sources
}
