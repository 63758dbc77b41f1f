//! Plans a network load balancer. No IO, no clock.

mod deletion;
mod first_listeners;
mod groups;
mod listeners;
mod node_rules;
mod step;
mod target_groups;
mod targets;

use std::collections::BTreeSet;

use outrigger_aws::ec2::Subnet;
use outrigger_aws::elbv2::{NewNetworkLoadBalancer, SubnetMapping};

use super::super::error::Environment;
use super::super::model::network::Existing;
use super::super::spec::names;
use super::super::spec::network::attributes;
use super::super::spec::request::Subnets;
use super::subnets;
use super::{GroupRef, Plan, Planned, or_refused};

use super::input::NetworkInput;
pub use deletion::plan_deletion;
pub use node_rules::{as_permissions, unneeded_checks};
pub use step::{BalancerRef, Step, TargetGroupRef};

/// A plan that only updates targets, for a Service whose spec is refused. Rules of the Nodes' groups depend on the spec
/// and stay.
pub fn plan_targets(input: NetworkInput<'_, ()>) -> Plan {
    let goal = targets::goal(input);
    let groups = input
        .observed
        .load_balancer
        .iter()
        .flat_map(|existing| &existing.groups);
    let steps = groups.filter_map(|group| targets::of_kept(&goal, group, group.described.port));

    Plan {
        steps: steps.collect(),
        unconfirmed: goal.unconfirmed,
        targets: goal.after,
        ..Plan::default()
    }
}

/// A new load balancer is created in the order of the in-tree provider. On an existing one, rules are added before, and
/// revoked after, all other steps, so that traffic is never interrupted. If one Node cannot get a rule, all steps but
/// the Nodes' rules are done.
/// Fails when AWS does not allow the spec; then there are no steps at all.
pub fn plan(input: NetworkInput<'_>) -> Result<Plan, Environment> {
    let NetworkInput { observed, .. } = input;
    let subnets = placement(input)?;
    let targets = targets::goal(input);
    let own = groups::own(input)?;
    let groups = groups::wanted(input);
    let (steps, targets, uses_shared_rules, refused) = match &observed.load_balancer {
        None => {
            let listeners = first_listeners::of_new(input, &subnets, &targets)?;
            let targets = targets.without_lost(&listeners, &BTreeSet::new(), observed);
            let (rules, refused) = or_refused(node_rules::of_nodes(input, &subnets, &targets.after));
            let mut steps = own.made;
            steps.push(creation(input, &subnets, groups)?);
            steps.extend(listeners);
            steps.extend(balancer_attributes(input, BalancerRef::Created));
            steps.extend(target_groups::attributes_of_new(input));
            steps.extend([own.opened, own.closed, rules.add, rules.remove].concat());
            steps.extend(groups::leftover(input));

            (steps, targets, rules.uses_shared_rules, refused)
        }
        Some(existing) => {
            let (listeners, gone) = listeners::sync(input, existing, &targets)?;
            let targets = targets.without_lost(&listeners, &gone, observed);
            let stands_in = observed.stands_in();
            let (rules, refused) = or_refused(node_rules::of_nodes(input, &stands_in, &targets.after));
            let mut steps = [own.made, own.opened].concat();
            steps.extend(groups::attachment(existing, groups));
            steps.extend(rules.add);
            steps.extend(listeners);

            let arn = BalancerRef::Arn(existing.described.arn.clone());
            steps.extend(balancer_attributes(input, arn));
            steps.extend([own.closed, rules.remove, groups::leftover(input)].concat());

            (steps, targets, rules.uses_shared_rules, refused)
        }
    };

    Ok(Plan {
        steps,
        unconfirmed: targets.unconfirmed,
        unchosen_subnets: BTreeSet::new(),
        targets: targets.after,
        uses_shared_rules,
        refused,
    })
}

/// The subnets for a new load balancer. Those of an existing one cannot be changed, but a missing listed subnet is
/// still reported, as in v1.37.0.
fn placement(input: NetworkInput<'_>) -> Result<Vec<Subnet>, Environment> {
    let NetworkInput {
        desired,
        settings,
        observed,
        ..
    } = input;
    let mut wanted = subnets::wanted(
        &desired.subnets,
        subnets::is_internal(observed.scheme(), desired.internal),
        settings,
        &observed.attached(),
        &observed.vpc,
    )?;

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
fn addresses(
    annotation: &'static str,
    listed: Option<&Vec<String>>,
    subnets: &[Subnet],
) -> Result<Vec<String>, Environment> {
    match listed {
        None => Ok(Vec::new()),
        Some(listed) if listed.len() == subnets.len() => Ok(listed.clone()),
        Some(listed) => Err(Environment::AddressCount {
            annotation,
            addresses: listed.len(),
            subnets: subnets.len(),
        }),
    }
}

fn balancer_attributes(input: NetworkInput<'_>, of: BalancerRef) -> Option<Planned> {
    let fresh = attributes::of_new_balancer();
    let existing: Option<&Existing> = input.observed.load_balancer.as_ref();
    let actual = existing.map_or(Some(&fresh), |existing| existing.attributes.as_ref())?;
    let differences = attributes::differences(&input.desired.attributes, actual);
    let names: Vec<&str> = differences.keys().map(String::as_str).collect();
    let reason = format!("attributes differ: {}", names.join(", "));
    (!differences.is_empty()).then(|| Planned::new(Step::ModifyAttributes(of, differences), reason))
}
