//! Reading at AWS what a plan is made from. Everything is asked for by name, ID or filter; nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outrigger_aws::ec2::{AvailabilityZone, MAX_FILTER_VALUES, RouteTable, SecurityGroup, Subnet};
use outrigger_aws::elb::{Attributes, LoadBalancer};
use outrigger_aws::{Ec2, Elb, Error, Filter, InstanceId, Tags};

use super::desired::{Desired, Groups, Settings, Subnets};
use super::instance_cache::InstanceCache;
use super::subnets;
use super::targets::{Candidate, NodeInstance};
use super::zone_cache::ZoneCache;

/// AWS, and what is remembered of it between Services.
pub struct Aws {
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Instances of Nodes.
    pub instances: InstanceCache,
    /// Zones of the region.
    pub zones: ZoneCache,
}

/// A load balancer that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    /// Its description.
    pub described: LoadBalancer,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its tags.
    pub tags: Tags,
}

/// What AWS has for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The load balancer of the Service's name.
    pub load_balancer: Option<Existing>,
    /// The group that was made for it.
    pub own_group: Option<SecurityGroup>,
    /// The subnets that may be chosen from and those that the load balancer has.
    pub subnets: Vec<Subnet>,
    /// The VPC's route tables; empty where the annotation lists subnets.
    pub route_tables: Vec<RouteTable>,
    /// The region's zones; empty where the annotation lists subnets.
    pub zones: Vec<AvailabilityZone>,
    /// The instances of the candidates, as far as EC2 lists them.
    pub instances: BTreeMap<InstanceId, NodeInstance>,
    /// The security groups of these instances.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Groups with a rule that names a group of the load balancer.
    pub referencing: Vec<SecurityGroup>,
}

/// Reads what a plan for this Service needs.
///
/// # Errors
/// The first call that failed.
pub async fn observe(
    aws: &Aws,
    desired: &Desired,
    settings: &Settings,
    candidates: &[Candidate],
) -> Result<Observed, Error> {
    let load_balancer = existing(aws, &desired.name).await?;
    let own_group = group_by_name(aws, &settings.vpc_id, &desired.own_group.name).await?;
    let mut observed = Observed {
        load_balancer,
        own_group,
        ..Observed::default()
    };
    observe_subnets(aws, desired, settings, &mut observed).await?;
    let ids: BTreeSet<InstanceId> = candidates.iter().map(|candidate| candidate.id.clone()).collect();
    observed.instances = aws.instances.look_up(&ids).await?;
    if !settings.disable_security_group_ingress {
        let of_instances = observed
            .instances
            .values()
            .flat_map(|instance| instance.security_groups.iter().cloned());
        observed.groups = groups_by_id(aws, of_instances.collect()).await?;
        observed.referencing = referencing(aws, sources(desired, observed.own_group.as_ref())).await?;
    }
    Ok(observed)
}

async fn existing(aws: &Aws, name: &str) -> Result<Option<Existing>, Error> {
    let Some(described) = aws.elb.describe(name).await? else {
        return Ok(None);
    };
    let attributes = aws.elb.attributes(name).await?;
    let tags = aws.elb.describe_tags(name).await?;
    Ok(Some(Existing {
        described,
        attributes,
        tags,
    }))
}

/// The group of this name in the VPC; names are unique there.
///
/// # Errors
/// When the call failed.
pub async fn group_by_name(aws: &Aws, vpc_id: &str, name: &str) -> Result<Option<SecurityGroup>, Error> {
    let filters = [Filter::new("group-name", [name]), Filter::new("vpc-id", [vpc_id])];
    Ok(aws.ec2.security_groups(&filters).await?.into_iter().next())
}

async fn groups_by_id(aws: &Aws, ids: BTreeSet<String>) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let ids: Vec<String> = ids.into_iter().collect();
    let mut found = BTreeMap::new();
    for chunk in ids.chunks(MAX_FILTER_VALUES) {
        let groups = aws
            .ec2
            .security_groups(&[Filter::new("group-id", chunk.iter().cloned())])
            .await?;
        found.extend(groups.into_iter().map(|group| (group.id.clone(), group)));
    }
    Ok(found)
}

/// The groups with a rule that names one of `sources`; no source: no call.
///
/// # Errors
/// When the call failed.
pub async fn referencing(aws: &Aws, sources: BTreeSet<String>) -> Result<Vec<SecurityGroup>, Error> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    aws.ec2
        .security_groups(&[Filter::new("ip-permission.group-id", sources)])
        .await
}

/// The groups whose traffic nodes let in, or did before the annotations changed.
fn sources(desired: &Desired, own: Option<&SecurityGroup>) -> BTreeSet<String> {
    let mut sources: BTreeSet<String> = own.map(|group| group.id.clone()).into_iter().collect();
    if let Groups::Given(given) = &desired.groups {
        sources.extend(given.first().cloned());
    }
    sources
}

async fn observe_subnets(
    aws: &Aws,
    desired: &Desired,
    settings: &Settings,
    observed: &mut Observed,
) -> Result<(), Error> {
    let of_vpc = Filter::new("vpc-id", [&settings.vpc_id]);
    match &desired.subnets {
        Subnets::Discover => {
            observed.subnets = aws.ec2.subnets(&[of_vpc]).await?;
            observed.route_tables = aws.ec2.route_tables(&settings.vpc_id).await?;
            let known = aws.zones.known();
            let stale = subnets::has_unknown_zone(&observed.subnets, &known);
            observed.zones = if stale {
                aws.zones.refresh(aws.ec2.as_ref()).await?
            } else {
                known
            };
        }
        Subnets::Listed { ids, names } => {
            let attached = observed
                .load_balancer
                .iter()
                .flat_map(|lb| lb.described.subnets.iter().cloned());
            let by_id: BTreeSet<String> = ids.iter().cloned().chain(attached).collect();
            if !by_id.is_empty() {
                observed.subnets = aws.ec2.subnets(&[Filter::new("subnet-id", by_id)]).await?;
            }
            if !names.is_empty() {
                let named = [Filter::new("tag:Name", names.iter().cloned()), of_vpc];
                let found = aws.ec2.subnets(&named).await?;
                let known: BTreeSet<String> = observed.subnets.iter().map(|subnet| subnet.id.clone()).collect();
                observed
                    .subnets
                    .extend(found.into_iter().filter(|subnet| !known.contains(&subnet.id)));
            }
        }
    }
    Ok(())
}
