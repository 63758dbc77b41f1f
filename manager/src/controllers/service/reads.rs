//! Reading at AWS what load balancers of either kind need. Everything is asked for by name, ID or filter; nothing is
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outrigger_aws::ec2::{AvailabilityZone, MAX_FILTER_VALUES, RouteTable, SecurityGroup, Subnet};
use outrigger_aws::{Ec2, Elb, Elbv2, Error, Filter};

use super::network::listing::Listing;
use super::node_instances::NodeInstances;
use super::request::Subnets;
use super::settings::Settings;
use super::subnets;
use super::zone_cache::ZoneCache;

/// AWS, and what is remembered of it between Services.
pub struct Aws {
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
    /// All target groups, when they were last listed.
    pub target_groups: Listing,
    /// Instances of Nodes.
    pub instances: NodeInstances,
    /// Zones of the region.
    pub zones: ZoneCache,
}

/// The group of this name in the VPC; names are unique there.
///
/// # Errors
/// When the call failed.
pub async fn group_by_name(aws: &Aws, vpc_id: &str, name: &str) -> Result<Option<SecurityGroup>, Error> {
    let filters = [Filter::new("group-name", [name]), Filter::new("vpc-id", [vpc_id])];
    Ok(aws.ec2.security_groups(&filters).await?.into_iter().next())
}

/// The groups of these IDs, as far as EC2 lists them.
///
/// # Errors
/// When a call failed.
pub async fn groups_by_id(aws: &Aws, ids: BTreeSet<String>) -> Result<BTreeMap<String, SecurityGroup>, Error> {
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

/// What subnets are chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vpc {
    /// The subnets that may be chosen from and those that the load balancer has.
    pub subnets: Vec<Subnet>,
    /// The VPC's route tables; empty where the annotation lists subnets.
    pub route_tables: Vec<RouteTable>,
    /// The region's zones; empty where the annotation lists subnets.
    pub zones: Vec<AvailabilityZone>,
}

/// Reads what subnets are chosen from, for a load balancer that stands in `attached`.
///
/// # Errors
/// The first call that failed.
pub async fn vpc(aws: &Aws, wanted: &Subnets, settings: &Settings, attached: &BTreeSet<String>) -> Result<Vpc, Error> {
    match wanted {
        Subnets::Discover => discovered(aws, settings).await,
        Subnets::Listed { ids, names } => {
            let by_id: BTreeSet<String> = ids.iter().chain(attached).cloned().collect();
            listed(aws, settings, by_id, names).await
        }
    }
}

async fn discovered(aws: &Aws, settings: &Settings) -> Result<Vpc, Error> {
    let of_vpc = Filter::new("vpc-id", [&settings.vpc_id]);
    let subnets = aws.ec2.subnets(&[of_vpc]).await?;
    let route_tables = aws.ec2.route_tables(&settings.vpc_id).await?;
    let known = aws.zones.known();
    let stale = subnets::has_unknown_zone(&subnets, &known);
    let zones = if stale {
        aws.zones.refresh(aws.ec2.as_ref()).await?
    } else {
        known
    };
    Ok(Vpc {
        subnets,
        route_tables,
        zones,
    })
}

async fn listed(aws: &Aws, settings: &Settings, by_id: BTreeSet<String>, names: &[String]) -> Result<Vpc, Error> {
    let mut found = Vec::new();
    if !by_id.is_empty() {
        found = aws.ec2.subnets(&[Filter::new("subnet-id", by_id)]).await?;
    }
    if !names.is_empty() {
        let of_vpc = Filter::new("vpc-id", [&settings.vpc_id]);
        let named = [Filter::new("tag:Name", names.iter().cloned()), of_vpc];
        let more = aws.ec2.subnets(&named).await?;
        let known: BTreeSet<String> = found.iter().map(|subnet| subnet.id.clone()).collect();
        found.extend(more.into_iter().filter(|subnet| !known.contains(&subnet.id)));
    }
    Ok(Vpc {
        subnets: found,
        ..Vpc::default()
    })
}
