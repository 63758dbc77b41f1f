//! Who needs a rule for health checks when the load balancer that it was made for needs it no more.
//!
//! Load balancers whose health checks come in at one port of all nodes need the same rules, and EC2 keeps each once, with the
//! description of the one that came first. While that one is there they stay, whatever it needs itself. When it goes they are
//! handed over, each to one that is checked at this port from this network.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::{IpPermission, IpRange, SecurityGroup};

use super::super::spec::network::names::{HEALTH_RULE, rule};

/// The protocol of every rule for health checks.
pub const PROTOCOL: &str = "tcp";

/// The port that health checks come in at, and the network that they come from.
pub type Check = (i32, String);

/// By what a rule lets in, the name of a load balancer that needs it.
pub type OtherUsers = BTreeMap<Check, String>;

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
pub fn shares(other_users: &OtherUsers, checks: impl Iterator<Item = Check>) -> BTreeMap<&String, BTreeSet<Check>> {
    let mut shares: BTreeMap<&String, BTreeSet<Check>> = BTreeMap::new();
    for check in checks {
        if let Some(other_user) = other_users.get(&check) {
            shares.entry(other_user).or_default().insert(check);
        }
    }
    shares
}
