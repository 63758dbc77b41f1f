//! Who needs a rule for health checks when the load balancer that it was made for needs it no more.
//!
//! Load balancers whose health checks come in at one port of all nodes need the same rules, and EC2 keeps each once, with the
//! description of the one that came first. While that one is there they stay, whatever it needs itself. When it goes they are
//! handed over, each to one that is checked at this port from this network.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::Error;
use outrigger_aws::ec2::{IpPermission, IpRange, SecurityGroup};
use outrigger_aws::elbv2::TargetGroup;

use super::super::names::{in_cluster, is_load_balancer};
use super::super::reads::{Look, subnets_of_vpc};
use super::super::settings::Settings;
use super::listing::Search;
use super::names::{HEALTH_RULE, load_balancer_of, rule};

/// What a health check's AWS setting for its port says if it is the port of the traffic.
const TRAFFIC_PORT: &str = "traffic-port";

/// The protocol of every rule for health checks.
pub const PROTOCOL: &str = "tcp";

/// The port that health checks come in at, and the network that they come from.
pub type Check = (i32, String);

/// By what a rule lets in, the name of a load balancer that needs it.
pub type Heirs = BTreeMap<Check, String>;

/// The load balancers of the cluster, by their names made for Services and other than `load_balancer`, that need rules for
/// these checks.
///
/// # Errors
/// When a call failed. Without any check, or another load balancer that has its checks at such a port, few are made.
pub async fn heirs(
    look: &Look<'_>,
    settings: &Settings,
    load_balancer: &str,
    checks: &BTreeSet<Check>,
    search: Search,
) -> Result<Heirs, Error> {
    if checks.is_empty() {
        return Ok(Heirs::new());
    }
    let elb = look.elbv2.as_ref();
    let all = look.target_groups.all(elb, search).await?;
    let of_others = users(&all, checks, load_balancer);
    if of_others.is_empty() {
        return Ok(Heirs::new());
    }
    let arns: Vec<String> = of_others.keys().cloned().collect();
    let tags = look.tag_reads.allowed(elb.tags(&arns).await)?;
    let mut balancers = elb.all_load_balancers().await?;
    balancers.retain(|balancer| balancer.vpc_id.as_ref() == Some(&settings.vpc_id));
    balancers.retain(|balancer| is_load_balancer(&balancer.name));
    // A rule too many harms less than one too few: without tags every such load balancer of the VPC may be the cluster's.
    let of_cluster = |arn: &str| match &tags {
        Some(tags) => tags.get(arn).is_some_and(|tags| in_cluster(tags, &settings.cluster_id)),
        None => true,
    };
    balancers.retain(|balancer| of_cluster(&balancer.arn));
    let subnets = subnets_of_vpc(look, settings).await?;
    let mut heirs = Heirs::new();
    for balancer in &balancers {
        let ports = of_others.get(&balancer.arn).into_iter().flatten();
        for port in ports {
            let attached = subnets.iter().filter(|subnet| balancer.subnets.contains(&subnet.id));
            let each = attached.filter_map(|subnet| Some((*port, subnet.cidr_block.clone()?)));
            for check in each.filter(|check| checks.contains(check)) {
                heirs.insert(check, balancer.name.clone());
            }
        }
    }
    Ok(heirs)
}

/// The checks that rules with the load balancer's description let in.
#[must_use]
pub fn checks_of<'a>(groups: impl Iterator<Item = &'a SecurityGroup>, load_balancer: &str) -> BTreeSet<Check> {
    let description = rule(HEALTH_RULE, load_balancer);
    let rules = groups.flat_map(|group| &group.ingress);
    let ranges = rules.flat_map(|rule| rule.ranges.iter().map(move |range| (rule, range)));
    let described = ranges.filter(|(_, range)| range.description.as_ref() == Some(&description));
    described.filter_map(|(rule, range)| check(rule, range)).collect()
}

/// What a rule lets in from one network, if it is shaped as rules for health checks are.
#[must_use]
pub fn check(rule: &IpPermission, range: &IpRange) -> Option<Check> {
    let one_port = rule.protocol == PROTOCOL && rule.from_port == rule.to_port;
    Some((rule.from_port.filter(|_| one_port)?, range.cidr.clone()))
}

/// Who gets which of the checks; those that nobody needs are left out.
#[must_use]
pub fn shares(heirs: &Heirs, checks: impl Iterator<Item = Check>) -> BTreeMap<&String, BTreeSet<Check>> {
    let mut shares: BTreeMap<&String, BTreeSet<Check>> = BTreeMap::new();
    for check in checks {
        if let Some(heir) = heirs.get(&check) {
            shares.entry(heir).or_default().insert(check);
        }
    }
    shares
}

/// The load balancers, by ARN, that use target groups with checks at one of these ports, and at which.
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
