//! Who needs a rule for health checks when the load balancer goes that it was made for.
//!
//! Load balancers whose health checks come in at one port of all nodes need the same rule, and EC2 keeps it once, with the
//! description of the one that came first. When that one goes, the rule is handed over to another.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Elbv2, Error};

use super::super::names::in_cluster;
use super::names::{HEALTH_RULE, rule};

/// By port, the name of a load balancer of the cluster that needs the rule of `load_balancer`.
///
/// # Errors
/// When a call failed. Where no other load balancer has its checks at such a port, none is made.
pub async fn heirs(
    elb: &dyn Elbv2,
    all: &[TargetGroup],
    load_balancer: &str,
    groups: &BTreeMap<String, SecurityGroup>,
    cluster_id: &str,
) -> Result<BTreeMap<i32, String>, Error> {
    let ports = health_ports(load_balancer, groups);
    let users: BTreeSet<(i32, String)> = all.iter().flat_map(|group| users(group, &ports)).collect();
    let others = users.iter().filter(|(_, arn)| name_of(arn) != Some(load_balancer));
    let arns: BTreeSet<String> = others.map(|(_, arn)| arn.clone()).collect();
    if arns.is_empty() {
        return Ok(BTreeMap::new());
    }
    let arns: Vec<String> = arns.into_iter().collect();
    let tags = elb.tags(&arns).await?;
    let ours = |arn: &String| tags.get(arn).is_some_and(|tags| in_cluster(tags, cluster_id));
    let heirs = users.iter().filter(|(_, arn)| ours(arn));
    Ok(heirs
        .filter_map(|(port, arn)| Some((*port, name_of(arn)?.to_owned())))
        .collect())
}

/// The ports of the rules that are there for the load balancer's health checks.
fn health_ports(load_balancer: &str, groups: &BTreeMap<String, SecurityGroup>) -> BTreeSet<i32> {
    let description = rule(HEALTH_RULE, load_balancer);
    let rules = groups.values().flat_map(|group| &group.ingress);
    let of_checks = rules.filter(|rule| {
        let mut descriptions = rule.ranges.iter().map(|range| range.description.as_deref());
        descriptions.any(|text| text == Some(description.as_str()))
    });
    of_checks.filter_map(|rule| rule.from_port).collect()
}

/// Load balancers that use a target group whose checks come in at one of these ports.
fn users(group: &TargetGroup, ports: &BTreeSet<i32>) -> Vec<(i32, String)> {
    let port = group.health_check.port.parse().ok().filter(|port| ports.contains(port));
    let users = port.map(|port: i32| group.load_balancers.iter().map(move |arn| (port, arn.clone())));
    users.into_iter().flatten().collect()
}

/// The name in a load balancer's ARN: `….:loadbalancer/net/NAME/ID`.
fn name_of(arn: &str) -> Option<&str> {
    let (_, rest) = arn.split_once(":loadbalancer/net/")?;
    rest.split('/').next()
}
