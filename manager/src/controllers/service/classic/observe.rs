//! Reading at AWS what a plan is made from. Everything is asked for by name, ID or filter; nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elb::{Attributes, LoadBalancer};
use outrigger_aws::{Error, InstanceId};

use super::super::names;
use super::super::reads::{Look, Vpc, classic_load_balancer, group_by_name, groups_by_id, referencing, vpc};
use super::super::settings::Settings;
use super::super::tag_reads::KnownTags;
use super::super::targets::{Candidate, NodeInstance};
use super::desired::{Desired, Groups};

/// A load balancer that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    /// Its description.
    pub described: LoadBalancer,
    /// Its attributes, if they were read.
    pub attributes: Option<Attributes>,
    /// Its tags.
    pub tags: KnownTags,
}

/// What AWS has for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The load balancer of the Service's name.
    pub load_balancer: Option<Existing>,
    /// The group that was made for it.
    pub own_group: Option<SecurityGroup>,
    /// What its subnets are chosen from.
    pub vpc: Vpc,
    /// The instances of the candidates, as far as EC2 lists them.
    pub instances: BTreeMap<InstanceId, NodeInstance>,
    /// The security groups of these instances.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Groups with a rule that names a group of the load balancer.
    pub referencing: Vec<SecurityGroup>,
    /// Attached subnets that an earlier observation, long enough ago, has not chosen.
    pub unchosen_before: BTreeSet<String>,
}

impl Observed {
    /// The scheme of the load balancer, if it exists.
    #[must_use]
    pub fn scheme(&self) -> Option<&str> {
        self.load_balancer.as_ref()?.described.scheme.as_deref()
    }

    /// The subnets that the load balancer stands in.
    #[must_use]
    pub fn attached(&self) -> BTreeSet<String> {
        let subnets = self.load_balancer.as_ref().map(|existing| &existing.described.subnets);
        subnets.cloned().unwrap_or_default()
    }
}

/// Reads what a plan for this Service needs.
///
/// # Errors
/// The first call that failed.
pub async fn observe(
    look: &Look<'_>,
    desired: &Desired,
    settings: &Settings,
    candidates: &[Candidate],
) -> Result<Observed, Error> {
    let load_balancer = existing(look, &desired.name).await?;
    let own_group = group_by_name(look, &settings.vpc_id, &desired.own_group.name).await?;
    let mut observed = Observed {
        load_balancer,
        own_group,
        ..Observed::default()
    };
    observed.vpc = vpc(look, &desired.subnets, settings, &observed.attached()).await?;
    observed.instances = look.instances.look_up(&ids(candidates)).await?;
    if !settings.disable_security_group_ingress {
        observed.groups = groups_by_id(look, of_instances(&observed.instances)).await?;
        observed.referencing = referencing(look, sources(desired, observed.own_group.as_ref())).await?;
    }
    Ok(observed)
}

/// Reads what it takes to let the targets of a load balancer follow the Nodes.
///
/// # Errors
/// The first call that failed.
pub async fn standing(
    look: &Look<'_>,
    name: &str,
    settings: &Settings,
    candidates: &[Candidate],
) -> Result<Observed, Error> {
    let Some(described) = look.elb.describe(name).await? else {
        return Ok(Observed::default());
    };
    let mut observed = Observed {
        load_balancer: Some(Existing {
            described,
            ..Existing::default()
        }),
        ..Observed::default()
    };
    observed.instances = look.instances.look_up(&ids(candidates)).await?;
    if !settings.disable_security_group_ingress {
        observed.own_group = group_by_name(look, &settings.vpc_id, &names::security_group(name)).await?;
        observed.groups = groups_by_id(look, of_instances(&observed.instances)).await?;
    }
    Ok(observed)
}

fn ids(candidates: &[Candidate]) -> BTreeSet<InstanceId> {
    candidates.iter().map(|candidate| candidate.id.clone()).collect()
}

/// The security groups of instances.
fn of_instances(instances: &BTreeMap<InstanceId, NodeInstance>) -> BTreeSet<String> {
    let groups = instances.values().flat_map(|instance| &instance.security_groups);
    groups.cloned().collect()
}

async fn existing(look: &Look<'_>, name: &str) -> Result<Option<Existing>, Error> {
    let Some((described, tags)) = classic_load_balancer(look, name).await? else {
        return Ok(None);
    };
    let attributes = match look.reads_attributes() {
        true => look.optional(look.elb.attributes(name).await)?,
        false => None,
    };
    Ok(Some(Existing {
        described,
        attributes,
        tags,
    }))
}

/// The groups whose traffic nodes let in, or did before the annotations changed.
fn sources(desired: &Desired, own: Option<&SecurityGroup>) -> BTreeSet<String> {
    let mut sources: BTreeSet<String> = own.map(|group| group.id.clone()).into_iter().collect();
    if let Groups::Given(given) = &desired.groups {
        sources.extend(given.first().cloned());
    }
    sources
}
