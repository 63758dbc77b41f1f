//! The state of AWS in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::ec2::{AvailabilityZone, FargateEni, Filter, Instance, IpPermission, RouteTable, SecurityGroup, Subnet};
use crate::elb::{AccessLog, Attributes, LoadBalancer};
use crate::{InstanceId, Result, Tags};

use super::network::Network;
use super::quotas::{Quotas, Source};
use super::refusals::refuse;

/// A load balancer with what AWS keeps apart from its description.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FakeLoadBalancer {
    pub described: LoadBalancer,
    pub attributes: Attributes,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    pub instances: BTreeMap<InstanceId, Instance>,
    /// The network nodes of those instances that have some.
    pub topology: BTreeMap<InstanceId, Vec<String>>,
    /// Attached interfaces of Fargate nodes.
    pub fargate: Vec<FargateEni>,
    /// Network interfaces of others by ID, with their security groups.
    pub interfaces: BTreeMap<String, BTreeSet<String>>,
    pub zones: Vec<AvailabilityZone>,
    pub subnets: Vec<Subnet>,
    /// Route tables by VPC.
    pub route_tables: BTreeMap<String, Vec<RouteTable>>,
    /// How many routes a table may have; `None`: any number.
    pub most_routes: Option<usize>,
    /// Security groups by ID. Their rules are kept apart, one source each.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// Classic load balancers by name.
    pub load_balancers: BTreeMap<String, FakeLoadBalancer>,
    /// ARNs of certificates that AWS does not find.
    pub missing_certificates: BTreeSet<String>,
    /// Network load balancers, their listeners and target groups.
    pub network: Network,
    /// Security groups, and target groups by ARN, that AWS still holds in use, with how many more deletions it will
    /// refuse.
    pub lingering: BTreeMap<String, u32>,
    /// How many security groups were made so far; numbers their IDs.
    pub groups_made: u32,
    pub quotas: Quotas,
}

/// The attributes that AWS gives a new load balancer when it is made by the API.
#[must_use]
pub fn new_attributes() -> Attributes {
    Attributes {
        cross_zone: Some(false),
        access_log: Some(AccessLog::default()),
        connection_draining: Some(false),
        connection_draining_timeout: Some(300),
        idle_timeout: Some(60),
    }
}

impl World {
    /// Whether AWS refuses to delete this once more, since it is slow to notice that nothing uses it any longer.
    pub(super) fn lingers(&mut self, id: &str) -> bool {
        self.lingering.get_mut(id).is_some_and(|left| {
            let more = *left > 0;
            *left = left.saturating_sub(1);
            more
        })
    }
}

/// Splits rules into rules of one source each.
pub(super) fn split(rules: &[IpPermission]) -> Vec<IpPermission> {
    let mut single = Vec::new();
    for rule in rules {
        let bare = || IpPermission {
            protocol: rule.protocol.clone(),
            from_port: rule.from_port,
            to_port: rule.to_port,
            ..IpPermission::default()
        };

        single.extend(rule.ranges.iter().map(|range| IpPermission {
            ranges: vec![range.clone()],
            ..bare()
        }));
        single.extend(rule.ipv6_ranges.iter().map(|cidr| IpPermission {
            ipv6_ranges: vec![cidr.clone()],
            ..bare()
        }));
        single.extend(rule.groups.iter().map(|pair| IpPermission {
            groups: vec![pair.clone()],
            ..bare()
        }));
        single.extend(rule.prefix_lists.iter().map(|id| IpPermission {
            prefix_lists: vec![id.clone()],
            ..bare()
        }));
    }

    single
}

/// The sources of rules of one source each, as the quota of rules counts them.
pub(super) fn sources(rules: &[IpPermission]) -> impl Iterator<Item = Source> + Clone {
    rules
        .iter()
        .map(|rule| match (rule.ranges.is_empty(), rule.ipv6_ranges.is_empty()) {
            (false, _) => Source::Ipv4,
            (true, false) => Source::Ipv6,
            (true, true) => Source::Both,
        })
}

/// Groups rules by protocol and ports, as EC2 describes them.
pub(super) fn join(rules: &[IpPermission]) -> Vec<IpPermission> {
    let mut joined: Vec<IpPermission> = Vec::new();
    for rule in rules {
        let same = |other: &&mut IpPermission| {
            (&other.protocol, other.from_port, other.to_port) == (&rule.protocol, rule.from_port, rule.to_port)
        };
        if let Some(other) = joined.iter_mut().find(same) {
            other.ranges.extend(rule.ranges.iter().cloned());
            other.ipv6_ranges.extend(rule.ipv6_ranges.iter().cloned());
            other.groups.extend(rule.groups.iter().cloned());
            other.prefix_lists.extend(rule.prefix_lists.iter().cloned());
        } else {
            joined.push(rule.clone());
        }
    }

    joined
}

/// Whether two rules of one source each are the same to EC2, which does not look at descriptions.
pub(super) fn same(a: &IpPermission, b: &IpPermission) -> bool {
    let key = |rule: &IpPermission| {
        let cidrs: Vec<String> = rule.ranges.iter().map(|range| range.cidr.clone()).collect();
        let groups: Vec<Option<String>> = rule.groups.iter().map(|pair| pair.group_id.clone()).collect();
        (
            rule.protocol.clone(),
            rule.from_port,
            rule.to_port,
            cidrs,
            rule.ipv6_ranges.clone(),
            groups,
            rule.prefix_lists.clone(),
        )
    };
    key(a) == key(b)
}

/// Whether tags pass a filter by tag, which is the last kind that there may be.
pub(super) fn pass_tags(action: &'static str, tags: &Tags, filter: &Filter) -> Result<bool> {
    let message = format!("The filter '{}' is invalid", filter.name);
    tag_matches(tags, filter).map_or_else(|| refuse(action, "InvalidParameterValue", message), Ok)
}

/// The same; `None` for a filter that is not by tag.
pub(super) fn tag_matches(tags: &Tags, filter: &Filter) -> Option<bool> {
    if filter.name == "tag-key" {
        return Some(tags.keys().any(|key| filter.values.contains(key)));
    }
    let key = filter.name.strip_prefix("tag:")?;
    let matches = |value: &String| filter.values.iter().any(|pattern| is_like(value, pattern));
    Some(tags.get(key).is_some_and(matches))
}

/// Whether a value fits a pattern; of EC2's wildcards the one that stands at the end.
fn is_like(value: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => value == pattern,
    }
}
