//! Plans a network load balancer. No IO, no clock.

mod listeners;
mod node_rules;
mod target_groups;

use std::collections::BTreeSet;

use outrigger_aws::ec2::Subnet;
use outrigger_aws::elbv2::{NewNetworkLoadBalancer, SubnetMapping};

use super::super::error::Environment;
use super::super::model::network::{Existing, OwnedResources};
use super::super::settings::Settings;
use super::super::spec::desired::network::{Groups, attribute_differences, attributes_of_new_balancer};
use super::super::spec::names::{self, other_owner};
use super::super::spec::request::Subnets;
use super::claims::{PlannedClaim, View};
use super::{
    BalancerRef, GroupRef, NetworkInput, NetworkStep as Step, OwnGroupSteps, Plan, Planned, own_group_deletion,
    own_group_steps, subnets, unused_group_deletion,
};

/// A plan that only updates targets, for a Service whose spec is refused. Rules of the Nodes' groups depend on the spec
/// and stay.
pub fn plan_targets(input: NetworkInput<'_, ()>) -> Plan {
    let goal = target_groups::goal(input);
    let existing = input.observed.load_balancer.iter();
    let groups = existing.flat_map(|existing| &existing.groups);
    let steps = groups.filter_map(|group| target_groups::targets_of_kept(&goal, group, group.described.port));

    Plan {
        steps: steps.collect(),
        unconfirmed: goal.unconfirmed,
        targets: goal.after,
        claim: (!input.settings.disable_security_group_ingress)
            .then(|| PlannedClaim::lasting(node_rules::in_use(input.observed), input.claims.since)),
        ..Plan::default()
    }
}

/// A new load balancer is created in the order of the in-tree provider, with the rules for its Nodes last: it gets no
/// traffic before the status of the Service names it. An existing one has traffic. There rules are added before, and
/// revoked after, all other steps, so that the traffic is never interrupted. If one Node cannot get a rule, all steps
/// but the Nodes' rules are done. Fails when AWS does not allow the spec; then there are no steps at all.
pub fn plan(input: NetworkInput<'_>) -> Result<Plan, Environment> {
    let NetworkInput { observed, .. } = input;
    let subnets = placement(input)?;
    let targets = target_groups::goal(input);
    let own = own_group(input)?;
    let groups = wanted_groups(input);
    let (steps, targets, claim, refused) = match &observed.load_balancer {
        None => {
            let listeners = listeners::of_new(input, &subnets, &targets)?;
            let targets = targets.without_lost(&listeners, &BTreeSet::new(), observed);
            let nothing = BTreeSet::new();
            let (rules, claim, refused) = node_rules::of_nodes(input, &subnets, &targets.after, &nothing);
            let mut steps = own.made;
            steps.push(creation(input, &subnets, groups)?);
            steps.extend(listeners);
            steps.extend(balancer_attributes(input, BalancerRef::Created));
            steps.extend(target_groups::attributes_of_new(input));
            steps.extend([own.opened, own.closed, rules.add, rules.remove].concat());
            steps.extend(leftover_group(input));

            (steps, targets, claim, refused)
        }
        Some(existing) => {
            let synced = listeners::sync(input, existing, &targets)?;
            let targets = targets.without_lost(&synced.steps, &synced.gone, observed);
            let stands_in = observed.stands_in();
            let (rules, claim, refused) =
                node_rules::of_nodes(input, &stands_in, &targets.after, &synced.awaited_ports);
            let mut steps = [own.made, own.opened].concat();
            steps.extend(attachment(existing, groups));
            steps.extend(rules.add);
            steps.extend(synced.steps);

            let arn = BalancerRef::Arn(existing.described.arn.clone());
            steps.extend(balancer_attributes(input, arn));
            steps.extend([own.closed, rules.remove, leftover_group(input)].concat());

            (steps, targets, claim, refused)
        }
    };

    Ok(Plan {
        steps,
        unconfirmed: targets.unconfirmed,
        unchosen_subnets: BTreeSet::new(),
        targets: targets.after,
        claim,
        refused,
    })
}

/// The subnets for a new load balancer. Those of an existing one cannot be changed, but a missing listed subnet is
/// still reported, as in v1.37.
fn placement(input: NetworkInput<'_>) -> Result<Vec<Subnet>, Environment> {
    let NetworkInput { desired, observed, .. } = input;
    let (attached, vpc) = (&observed.attached(), &observed.vpc);
    let internal = subnets::is_internal(observed.scheme(), desired.internal);
    let mut wanted = subnets::wanted(&desired.subnets, internal, input.settings, attached, vpc)?;

    if let Subnets::Listed { ids, names } = &desired.subnets {
        let of_name = |subnet: &Subnet| names.iter().position(|name| subnet.tags.get("Name") == Some(name));
        let of_id = |subnet: &Subnet| ids.iter().position(|id| *id == subnet.id);
        let place = |subnet: &Subnet| of_id(subnet).or_else(|| of_name(subnet).map(|at| ids.len() + at));
        // Matches of wildcards come last.
        wanted.sort_by_key(|subnet| place(subnet).unwrap_or(usize::MAX));
    }

    Ok(wanted)
}

fn creation(input: NetworkInput<'_>, subnets: &[Subnet], groups: Vec<GroupRef>) -> Result<Planned, Environment> {
    let desired = input.desired;
    let elastic = addresses("eip-allocations", desired.elastic_addresses.as_ref(), subnets)?;
    let private = addresses("private-ipv4-addresses", desired.private_addresses.as_ref(), subnets)?;
    let mapping = |(at, subnet): (usize, &Subnet)| SubnetMapping {
        subnet_id: subnet.id.clone(),
        allocation_id: elastic.get(at).cloned(),
        private_ipv4_address: private.get(at).cloned(),
    };
    let new = NewNetworkLoadBalancer {
        name: desired.name.clone(),
        internal: desired.internal,
        subnets: subnets.iter().enumerate().map(mapping).collect(),
        security_groups: Vec::new(),
        tags: names::creation_tags(&desired.tags, input.settings.cluster_uid.as_deref(), names::MOST_TAGS),
    };
    let step = Step::CreateLoadBalancer { new, groups };

    Ok(Planned::new(step, "AWS has no load balancer of this name"))
}

/// The listed addresses: none, or one for each subnet.
fn addresses<'a>(
    annotation: &'static str,
    listed: Option<&'a Vec<String>>,
    subnets: &[Subnet],
) -> Result<&'a [String], Environment> {
    match listed {
        None => Ok(&[]),
        Some(listed) if listed.len() == subnets.len() => Ok(listed),
        Some(listed) => Err(Environment::AddressCount {
            annotation,
            addresses: listed.len(),
            subnets: subnets.len(),
        }),
    }
}

fn balancer_attributes(input: NetworkInput<'_>, of: BalancerRef) -> Option<Planned> {
    let fresh = attributes_of_new_balancer();
    let existing: Option<&Existing> = input.observed.load_balancer.as_ref();
    let actual = existing.map_or(Some(&fresh), |existing| existing.attributes.as_ref())?;
    let differences = attribute_differences(&input.desired.attributes, actual);
    let names: Vec<&str> = differences.keys().map(String::as_str).collect();
    let reason = format!("attributes differ: {}", names.join(", "));
    (!differences.is_empty()).then(|| Planned::new(Step::ModifyAttributes(of, differences), reason))
}

/// Whether nothing enforces the source ranges of the Service: neither a security group of the load balancer, nor rules
/// of the Nodes, which do not see the clients' addresses.
pub fn ignores_source_ranges(input: NetworkInput<'_>) -> bool {
    let (desired, existing) = (input.desired, input.observed.load_balancer.as_ref());
    let has_groups = existing.is_some_and(|existing| !existing.described.security_groups.is_empty());
    desired.hides_clients() && !desired.is_for_everyone() && !has_groups && wanted_groups(input).is_empty()
}

/// AWS allows no groups on a load balancer that was created without any.
fn takes_groups(input: NetworkInput<'_>) -> bool {
    let existing = input.observed.load_balancer.as_ref();
    existing.is_none_or(|existing| !existing.described.security_groups.is_empty())
}

/// The load balancer's groups in order; empty: it keeps its groups.
fn wanted_groups(input: NetworkInput<'_>) -> Vec<GroupRef> {
    if !takes_groups(input) {
        return Vec::new();
    }
    match &input.desired.groups {
        Groups::Kept => Vec::new(),
        Groups::Given(ids) => ids.iter().cloned().map(GroupRef::Id).collect(),
        Groups::Managed => vec![GroupRef::of(input.observed.own_group.as_ref())],
    }
}

/// The load balancer's own group, with tags and exactly the wanted ingress.
fn own_group(input: NetworkInput<'_>) -> Result<OwnGroupSteps, Environment> {
    let desired = input.desired;
    if desired.groups != Groups::Managed || !takes_groups(input) {
        return Ok(OwnGroupSteps::default());
    }

    let (wanted, actual) = (&desired.own_group, input.observed.own_group.as_ref());
    own_group_steps(wanted, &desired.cluster_tags, &desired.ingress, actual)
}

/// Sets the wanted groups, if there are any and the load balancer has others.
fn attachment(existing: &Existing, wanted: Vec<GroupRef>) -> Option<Planned> {
    let described = &existing.described;
    let now: BTreeSet<GroupRef> = described.security_groups.iter().cloned().map(GroupRef::Id).collect();
    if wanted.is_empty() || now == wanted.iter().cloned().collect() {
        return None;
    }

    let reason = format!("its {} security groups are not the requested ones", now.len());
    let step = Step::SetSecurityGroups(described.arn.clone(), wanted);
    Some(Planned::new(step, reason))
}

/// The own group of a load balancer that uses given groups now.
fn leftover_group(input: NetworkInput<'_>) -> Vec<Planned> {
    let NetworkInput { desired, observed, .. } = input;
    match (&desired.groups, &observed.own_group) {
        (Groups::Given(given), Some(own)) if takes_groups(input) => {
            let kept = (given.as_slice(), &desired.cluster_tags);
            unused_group_deletion(own, kept, &observed.referencing, input.settings)
        }
        _ => Vec::new(),
    }
}

/// Deletes everything. After a crash at any step the plan is made again without the steps that are done.
pub fn plan_deletion(owned_resources: &OwnedResources, settings: &Settings, view: View<'_>) -> Plan {
    let mut steps = Vec::new();
    // Rules of the Nodes' groups are found by the load balancer's name, which another cluster's load balancer may have
    // too.
    let is_ours_to_delete = other_owner(owned_resources.tags.as_ref(), settings).is_none();
    if let Some(arn) = owned_resources.load_balancer.as_ref().filter(|_| is_ours_to_delete) {
        let reason = "the Service does not request a load balancer any more";
        steps.push(Planned::new(Step::DeleteLoadBalancer(arn.clone()), reason));
    }

    for group in &owned_resources.target_groups {
        let step = Step::DeleteTargetGroup(group.arn.clone());
        steps.push(Planned::new(step, "it was created for the load balancer"));
    }

    let mut claim = None;
    if is_ours_to_delete && !settings.disable_security_group_ingress {
        let (rules, of_rules) = node_rules::removal(owned_resources, settings, view);
        steps.extend(rules.remove);
        claim = Some(of_rules);
    }

    let (own, listed) = (owned_resources.own_group.as_ref(), &owned_resources.listed);
    steps.extend(own_group_deletion(own, listed, &owned_resources.referencing, settings));

    Plan {
        claim,
        ..Plan::of(steps)
    }
}
