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
use super::super::claims::{Claim, ClaimSteps, Key, Needs, PlannedClaim, Rule, View};
use super::super::{NetworkInput, security_groups};

const EVERYONE: &str = "0.0.0.0/0";

/// The claim of a load balancer in these subnets, its steps, and the reason why its groups cannot be chosen.
pub(super) fn of_nodes(
    input: NetworkInput<'_>,
    subnets: &[Subnet],
    targets: &BTreeSet<InstanceId>,
) -> (ClaimSteps, Option<PlannedClaim>, Option<Environment>) {
    let (desired, settings, observed) = (input.desired, input.settings, input.observed);
    if settings.disable_security_group_ingress {
        return (ClaimSteps::default(), None, None);
    }

    let chosen = security_groups::of_targets(targets, &observed.instances, &observed.groups, &settings.cluster_id);
    let (chosen, refused) = match chosen {
        Ok(chosen) => (chosen, None),
        Err(refused) => (BTreeSet::new(), Some(refused)),
    };
    // A target that EC2 does not describe may be in any group.
    let all_known = refused.is_none() && targets.iter().all(|target| observed.instances.contains_key(target));
    let needs = needs(desired, subnets);
    let open = chosen.into_iter().filter(|id| !settings.is_frozen(id));
    let after = Claim {
        groups: open.map(|id| (id, needs.clone())).collect(),
        ports: if all_known { BTreeSet::new() } else { ports(desired) },
        ..Claim::default()
    };

    let steps = ClaimSteps::of(
        input.claims,
        (&desired.name, &after),
        observed.groups.values(),
        settings,
    );
    let mut during = in_use(observed);
    during.join(&after);
    let claim = PlannedClaim {
        during,
        after: Some(after),
        since: input.claims.since,
    };
    (steps, Some(claim), refused)
}

/// The claim of a load balancer whose spec is refused: what AWS has for it.
pub(super) fn of_refused(observed: &Observed, view: View<'_>) -> PlannedClaim {
    PlannedClaim {
        during: in_use(observed),
        after: None,
        since: view.since,
    }
}

/// The ports of the target groups and their health checks.
fn in_use(observed: &Observed) -> Claim {
    let groups = observed.target_groups().map(|group| &group.described);
    let ports = groups.flat_map(|group| [Some(group.port), group.health_check.port.parse().ok()]);
    Claim {
        ports: ports.flatten().collect(),
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
    let steps = ClaimSteps::of(view, (name, &Claim::default()), groups, settings);
    let during = Claim {
        keeps_named: owned_resources.load_balancer.is_some(),
        ..Claim::default()
    };
    let claim = PlannedClaim {
        during,
        after: Some(Claim::default()),
        since: view.since,
    };
    (steps, claim)
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
