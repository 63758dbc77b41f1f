//! The rules of the Nodes' security groups that clients and health checks of a network load balancer need.
//!
//! Each rule has its load balancer in its description, by which it is found and revoked. EC2 compares rules by
//! protocol, ports and network only: an existing rule for another reason serves as well, and is never revoked.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::Subnet;

use super::super::super::error::Environment;
use super::super::super::model::network::{Observed, OwnedResources};
use super::super::super::settings::Settings;
use super::super::super::spec::desired::network::Desired;
use super::super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, UDP, rule};
use super::super::super::spec::permissions::{Rule, Rules, by_rule, join};
use super::super::claims::{Claim, ClaimSteps, PlannedClaim, View, mtu};
use super::super::{NetworkInput, security_groups};

const EVERYONE: &str = "0.0.0.0/0";

/// The protocol of every rule for health checks.
const PROTOCOL: &str = "tcp";

/// The claim of a load balancer in these subnets, its steps, and the reason why its groups cannot be chosen.
/// `awaited_ports`: old ports that still have traffic after the plan.
pub(super) fn of_nodes(
    input: NetworkInput<'_>,
    subnets: &[Subnet],
    targets: &BTreeSet<InstanceId>,
    awaited_ports: &BTreeSet<i32>,
) -> (ClaimSteps, Option<PlannedClaim>, Option<Environment>) {
    let (desired, settings, observed) = (input.desired, input.settings, input.observed);
    if settings.disable_security_group_ingress {
        return (ClaimSteps::default(), None, None);
    }

    let open = security_groups::of_targets(targets, (&observed.instances, &observed.groups), settings);
    let (needs, keeps_checks) = needs(desired, subnets);
    let after = Claim {
        groups: open.groups.into_iter().map(|id| (id, needs.clone())).collect(),
        keeps_checks,
        ports: match open.are_all_known {
            true => awaited_ports.clone(),
            false => awaited_ports | &ports(desired),
        },
        ..Claim::default()
    };

    let groups = observed.groups.values();
    let mut steps = ClaimSteps::of(input.claims, (&desired.name, &after), groups, settings);
    let claim = steps.claim(in_use(observed), after, input.claims.since);
    (steps, Some(claim), open.refused)
}

/// The ports of the target groups and their health checks.
pub(super) fn in_use(observed: &Observed) -> Claim {
    let groups = observed.target_groups();
    Claim {
        ports: groups.flat_map(|group| group.ports()).collect(),
        ..Claim::default()
    }
}

/// The steps that revoke all rules that only this load balancer needs. Its rules stay as long as it exists.
pub(super) fn removal(
    owned_resources: &OwnedResources,
    settings: &Settings,
    view: View<'_>,
) -> (ClaimSteps, PlannedClaim) {
    let (name, groups) = (&owned_resources.name, owned_resources.groups.values());
    let mut steps = ClaimSteps::of(view, (name, &Claim::default()), groups, settings);
    let during = Claim {
        keeps_named: owned_resources.load_balancer.is_some(),
        ..Claim::default()
    };
    let claim = steps.claim(during, Claim::default(), view.since);
    (steps, claim)
}

fn ports(desired: &Desired) -> BTreeSet<i32> {
    let ports = desired.ports.iter();
    ports
        .flat_map(|port| [Some(port.target_group.port), port.health_port()])
        .flatten()
        .collect()
}

/// The needed rules, and whether existing ones for health checks stay: if every client may use the checked ports, the checks
/// need no rules of their own. Without ports there are no checks.
fn needs(desired: &Desired, subnets: &[Subnet]) -> (Rules, bool) {
    let udp = desired.ports.iter().any(|port| port.target_group.protocol == UDP);
    let ports: BTreeSet<i32> = desired.ports.iter().map(|port| port.target_group.port).collect();
    let checked: BTreeSet<i32> = desired.ports.iter().filter_map(|port| port.health_port()).collect();
    let everyone = desired.networks.len() == 1 && desired.networks.contains(EVERYONE);
    let cidrs: BTreeSet<String> = subnets.iter().filter_map(|subnet| subnet.cidr_block.clone()).collect();

    let keeps_checks = !(udp || !everyone || ports != checked || ports.is_empty());
    let checks = keys(PROTOCOL, &checked, &cidrs).filter(|_| !keeps_checks);
    let clients = keys(if udp { "udp" } else { PROTOCOL }, &ports, &desired.networks);
    let networks = desired.networks.iter().filter(|_| !ports.is_empty());
    let described = [
        join(networks.map(|network| mtu(network)), Some(MTU_RULE)),
        join(clients, Some(&rule(CLIENT_RULE, &desired.name))),
        // A rule for both is one for health checks.
        join(checks, Some(&rule(HEALTH_RULE, &desired.name))),
    ];
    (by_rule(&described.concat()), keeps_checks)
}

fn keys<'a>(
    protocol: &'a str,
    ports: &'a BTreeSet<i32>,
    cidrs: &'a BTreeSet<String>,
) -> impl Iterator<Item = Rule> + 'a {
    let each = move |port: &'a i32| {
        let key = move |cidr: &String| (protocol.to_owned(), Some(*port), Some(*port), cidr.clone());
        cidrs.iter().map(key)
    };
    ports.iter().flat_map(each)
}
