//! Reads which other load balancers share rules for health checks.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::Error;
use outrigger_aws::elbv2::TargetGroup;

use super::super::plan::health_rules::{Check, OtherUsers};
use super::super::settings::Settings;
use super::super::spec::names::{in_cluster, is_load_balancer};
use super::super::spec::network::names::load_balancer_of;
use super::target_group_list::Search;
use super::{Reader, subnets_of_vpc};

/// Value of a health check's port that means the port of the traffic.
const TRAFFIC_PORT: &str = "traffic-port";

/// The other load balancers of the cluster that need rules for these checks.
/// Few calls are made without any check, or without another load balancer that has its checks at such a port.
pub async fn other_users(
    reader: &Reader<'_>,
    settings: &Settings,
    load_balancer: &str,
    checks: &BTreeSet<Check>,
    search: Search,
) -> Result<OtherUsers, Error> {
    if checks.is_empty() {
        return Ok(OtherUsers::new());
    }

    let elb = reader.elbv2.as_ref();
    let all = reader.target_groups.all(elb, search).await?;
    let of_others = users(&all, checks, load_balancer);
    if of_others.is_empty() {
        return Ok(OtherUsers::new());
    }

    let arns: Vec<String> = of_others.keys().cloned().collect();
    let tags = reader.tag_reads.allowed(elb.tags(&arns).await)?;
    let mut balancers = elb.all_load_balancers().await?;
    balancers.retain(|balancer| balancer.vpc_id.as_ref() == Some(&settings.vpc_id));
    balancers.retain(|balancer| is_load_balancer(&balancer.name));

    // An extra rule does less harm than a missing one: if tags are unknown, every such load balancer of the VPC counts
    // as the cluster's.
    let of_cluster = |arn: &str| match &tags {
        Some(tags) => tags.get(arn).is_some_and(|tags| in_cluster(tags, &settings.cluster_id)),
        None => true,
    };
    balancers.retain(|balancer| of_cluster(&balancer.arn));

    let subnets = subnets_of_vpc(reader, settings).await?;
    let mut other_users = OtherUsers::new();
    for balancer in &balancers {
        let ports = of_others.get(&balancer.arn).into_iter().flatten();
        for port in ports {
            let attached = subnets.iter().filter(|subnet| balancer.subnets.contains(&subnet.id));
            let each = attached.filter_map(|subnet| Some((*port, subnet.cidr_block.clone()?)));
            for check in each.filter(|check| checks.contains(check)) {
                other_users.insert(check, balancer.name.clone());
            }
        }
    }

    Ok(other_users)
}

/// ARNs of load balancers with checks at one of these ports, with the ports.
fn users(all: &[TargetGroup], checks: &BTreeSet<Check>, but: &str) -> BTreeMap<String, BTreeSet<i32>> {
    let ports: BTreeSet<i32> = checks.iter().map(|(port, _)| *port).collect();
    let mut users: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for group in all {
        let port = match group.health_check.port.as_str() {
            TRAFFIC_PORT => Some(group.port),
            number => number.parse().ok(),
        };
        let Some(port) = port.filter(|port| ports.contains(port)) else {
            continue;
        };

        for arn in group
            .load_balancers
            .iter()
            .filter(|arn| load_balancer_of(arn).is_some_and(|name| name != but))
        {
            users.entry(arn.clone()).or_default().insert(port);
        }
    }

    users
}
