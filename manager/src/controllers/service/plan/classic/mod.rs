//! Plans a classic load balancer. No IO, no clock.

mod balancer;
mod deletion;
mod groups;
mod step;
mod targets;

use std::collections::BTreeSet;

use outrigger_aws::ec2::Subnet;
use outrigger_aws::elb::{AccessLog, Attributes, LoadBalancer, NewLoadBalancer};

use super::super::error::Environment;
use super::super::model::classic::{Existing, KnownTags};
use super::super::spec::classic::desired::Desired;
use super::super::spec::names;
use super::super::spec::request::Subnets;
use super::subnets::Confirmed;
use super::{GroupRef, Plan, Planned, or_refused, subnets};

use super::input::ClassicInput;
pub use deletion::{is_ours, plan_deletion};
pub use step::Step;

/// A plan that only updates targets, for a Service whose spec is refused.
pub fn plan_targets(input: ClassicInput<'_, ()>) -> Plan {
    let Some(existing) = &input.observed.load_balancer else {
        return Plan::default();
    };

    // Rules that name a group of another owner are never revoked, so none is added before the spec is valid.
    let first = existing.described.security_groups.first();
    let own = input.observed.own_group.as_ref().map(|group| &group.id);
    let source = first.filter(|first| Some(*first) == own).cloned().map(GroupRef::Id);
    let targets = targets::change(input, existing);
    // If one Node cannot get a rule, the others become targets all the same. Rules are revoked when the spec is valid
    // again.
    let rules = groups::of_nodes(input, source.as_ref(), &targets.after).unwrap_or_default();

    Plan {
        steps: [rules.add, targets.steps].concat(),
        unconfirmed: targets.unconfirmed,
        targets: targets.after,
        ..Plan::default()
    }
}

/// The plan for a Service. If one Node cannot get a rule, all steps before the Nodes' rules are done, in the order of
/// the in-tree provider: targets come after.
/// Fails when AWS does not allow the spec; then there are no steps at all.
pub fn plan(input: ClassicInput<'_>) -> Result<Plan, Environment> {
    let ClassicInput { desired, observed, .. } = input;
    let groups = groups::wanted(desired, observed.own_group.as_ref());
    let subnets = placement(input)?;
    let existing = observed.load_balancer.clone().unwrap_or_else(|| fresh(desired));
    let targets = targets::change(input, &existing);
    let rules = groups::of_nodes(input, groups.first(), &targets.after);
    let (rules, refused) = or_refused(rules);
    let mut steps = groups::own(desired, observed)?;

    if observed.load_balancer.is_some() {
        // Other groups would interrupt the traffic that the Nodes allow.
        let groups = refused.is_none().then_some(&*groups);
        steps.extend(balancer::placement(observed, &existing, &subnets.wanted, groups)?);
    } else {
        steps.push(creation(input, &subnets.wanted, &groups));
    }

    steps.extend(balancer::settings(desired, &existing));
    if refused.is_none() {
        steps.extend([rules.add, targets.steps, rules.remove].concat());
        steps.extend(groups::leftover(input));
    }

    Ok(Plan {
        steps,
        unconfirmed: targets.unconfirmed,
        unchosen_subnets: subnets.unconfirmed,
        targets: targets.after,
        uses_shared_rules: false,
        refused,
    })
}

/// The subnets for now.
fn placement(input: ClassicInput<'_>) -> Result<Confirmed, Environment> {
    let ClassicInput {
        desired,
        settings,
        observed,
        ..
    } = input;
    let attached = observed.attached();
    let internal = subnets::is_internal(observed.scheme(), desired.internal);
    let chosen = subnets::wanted(&desired.subnets, internal, settings, &attached, &observed.vpc)?;

    match desired.subnets {
        Subnets::Discover => {
            let before = &observed.unchosen_before;
            Ok(subnets::confirmed(chosen, &attached, before, &observed.vpc.subnets))
        }
        Subnets::Listed { .. } => Ok(Confirmed {
            wanted: chosen,
            unconfirmed: BTreeSet::new(),
        }),
    }
}

fn creation(input: ClassicInput<'_>, subnets: &[Subnet], groups: &[GroupRef]) -> Planned {
    let (desired, uid) = (input.desired, input.settings.cluster_uid.as_deref());
    let new = NewLoadBalancer {
        name: desired.name.clone(),
        internal: desired.internal,
        listeners: desired.listeners.clone(),
        subnets: subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        security_groups: Vec::new(),
        tags: names::creation_tags(&desired.tags, uid, names::MOST_CLASSIC_TAGS),
    };

    Planned::new(
        Step::CreateLoadBalancer {
            new,
            groups: groups.to_vec(),
        },
        "AWS has no load balancer of this name",
    )
}

/// A new load balancer as AWS creates it. A wrong guess costs one repair.
fn fresh(desired: &Desired) -> Existing {
    Existing {
        described: LoadBalancer {
            name: desired.name.clone(),
            listeners: desired.listeners.clone(),
            ..LoadBalancer::default()
        },
        attributes: Some(Attributes {
            cross_zone: Some(false),
            access_log: Some(AccessLog::default()),
            connection_draining: Some(false),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        }),
        tags: KnownTags::Read(desired.tags.clone()),
    }
}
