//! Rules for health checks that several load balancers share.
//!
//! Load balancers with health checks at the same port of all Nodes need the same rules. EC2 keeps each rule once, with
//! the description of the first load balancer. The rule stays as long as that one exists. When it is deleted, its rules
//! are handed over, each to a load balancer with checks at this port from this network.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::{IpPermission, IpRange, SecurityGroup};

use super::super::spec::network::names::{HEALTH_RULE, rule};

/// The protocol of every rule for health checks.
pub const PROTOCOL: &str = "tcp";

/// Port and source network of health checks.
pub type Check = (i32, String);

/// The other load balancer that needs a check.
pub type OtherUsers = BTreeMap<Check, String>;

/// The checks that rules with the load balancer's description allow.
pub fn checks_of<'a>(groups: impl Iterator<Item = &'a SecurityGroup>, load_balancer: &str) -> BTreeSet<Check> {
    let description = rule(HEALTH_RULE, load_balancer);
    let rules = groups.flat_map(|group| &group.ingress);
    let ranges = rules.flat_map(|rule| rule.ranges.iter().map(move |range| (rule, range)));
    let described = ranges.filter(|(_, range)| range.description.as_ref() == Some(&description));
    described.filter_map(|(rule, range)| check(rule, range)).collect()
}

/// The check that a rule allows from one network, if it has the form of a rule for health checks.
pub fn check(rule: &IpPermission, range: &IpRange) -> Option<Check> {
    let one_port = rule.protocol == PROTOCOL && rule.from_port == rule.to_port;
    Some((rule.from_port.filter(|_| one_port)?, range.cidr.clone()))
}

/// The checks by their new load balancer, without those that nobody needs.
pub fn shares(other_users: &OtherUsers, checks: impl Iterator<Item = Check>) -> BTreeMap<&String, BTreeSet<Check>> {
    let mut shares: BTreeMap<&String, BTreeSet<Check>> = BTreeMap::new();
    for check in checks {
        if let Some(other_user) = other_users.get(&check) {
            shares.entry(other_user).or_default().insert(check);
        }
    }
    shares
}
