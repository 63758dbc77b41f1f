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
use super::super::super::spec::names::UDP;
use super::super::super::spec::request::TRAFFIC_PORT;
use super::super::claims::{Claim, ClaimSteps, Key, Needs, NodeRules, Rule, View};
use super::super::{NetworkInput, security_groups};

const EVERYONE: &str = "0.0.0.0/0";

/// The steps for a load balancer in these subnets, and the reason why they cannot be planned.
pub(super) fn of_nodes(
    input: NetworkInput<'_>,
    subnets: &[Subnet],
    targets: &BTreeSet<InstanceId>,
) -> (ClaimSteps, Option<Environment>) {
    let (desired, settings, observed) = (input.desired, input.settings, input.observed);
    if settings.disable_security_group_ingress {
        return (ClaimSteps::default(), None);
    }

    let groups = security_groups::of_targets(targets, &observed.instances, &observed.groups, &settings.cluster_id);
    let (claim, refused) = match groups {
        Ok(groups) => {
            let needs = needs(desired, subnets);
            let open = groups.into_iter().filter(|id| !settings.is_frozen(id));
            // A target that EC2 does not describe may be in any group.
            let all_described = targets.iter().all(|target| observed.instances.contains_key(target));
            let claim = Claim {
                groups: open.map(|id| (id, needs.clone())).collect(),
                own_group: None,
                as_is: (!all_described).then(|| ports(desired)),
            };
            (claim, None)
        }
        Err(refused) => (Claim::as_is(ports(desired)), Some(refused)),
    };

    let groups = observed.groups.values();
    let steps = ClaimSteps::of(input.claims, (&desired.name, claim), groups, settings);
    (steps, refused)
}

/// The claim of a load balancer whose spec is refused: it needs what its target groups have.
pub(super) fn of_refused(observed: &Observed, view: View<'_>) -> NodeRules {
    let groups = observed.target_groups().map(|group| &group.described);
    let ports = groups.flat_map(|group| {
        let check = group.health_check.port.parse().ok();
        [
            Some(group.port),
            check.filter(|_| group.health_check.port != TRAFFIC_PORT),
        ]
    });
    NodeRules {
        claim: Claim::as_is(ports.flatten().collect()),
        since: view.since,
        ..NodeRules::default()
    }
}

/// The steps that revoke all rules that only this load balancer needs.
pub(super) fn removal(owned_resources: &OwnedResources, settings: &Settings, view: View<'_>) -> ClaimSteps {
    let groups = owned_resources.groups.values();
    ClaimSteps::of(view, (&owned_resources.name, Claim::default()), groups, settings)
}

fn ports(desired: &Desired) -> BTreeSet<i32> {
    let ports = desired.ports.iter();
    ports
        .flat_map(|port| [Some(port.target_group.port), port.health_port()])
        .flatten()
        .collect()
}

/// If every client may use the checked ports, the checks need no rules of their own; without ports there are no checks.
fn needs(desired: &Desired, subnets: &[Subnet]) -> Needs {
    let udp = desired.ports.iter().any(|port| port.target_group.protocol == UDP);
    let ports: BTreeSet<i32> = desired.ports.iter().map(|port| port.target_group.port).collect();
    let checked: BTreeSet<i32> = desired.ports.iter().filter_map(|port| port.health_port()).collect();
    let everyone = desired.networks.len() == 1 && desired.networks.contains(EVERYONE);
    let cidrs: BTreeSet<String> = subnets.iter().filter_map(|subnet| subnet.cidr_block.clone()).collect();

    let clients = keys(if udp { "udp" } else { "tcp" }, &ports, &desired.networks).map(Rule::Client);
    let needs_checks = udp || !everyone || ports != checked || ports.is_empty();
    let checks = keys("tcp", &checked, &cidrs).map(Rule::Check).filter(|_| needs_checks);
    Needs {
        rules: clients.chain(checks).collect(),
        keeps_checks: !needs_checks,
    }
}

fn keys<'a>(
    protocol: &'a str,
    ports: &'a BTreeSet<i32>,
    cidrs: &'a BTreeSet<String>,
) -> impl Iterator<Item = Key> + 'a {
    let each = move |port: &'a i32| {
        cidrs
            .iter()
            .map(move |cidr| (protocol.to_owned(), *port, *port, cidr.clone()))
    };
    ports.iter().flat_map(each)
}
