//! From what a Service asks for and what AWS has to the steps between the two. Pure: no IO, no clock.
//!
//! A plan is the same after a crash at any of its steps as it would have been further on: every step is found done
//! by its effect at AWS, never by a memory of having done it.

mod balancer;
mod deletion;
mod groups;
mod step;
mod targets;

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::Subnet;
use outrigger_aws::elb::{AccessLog, Attributes, LoadBalancer, NewLoadBalancer};

use super::desired::{Desired, Settings, Subnets};
use super::error::World;
use super::observe::{Existing, Observed};
use super::subnets;
use super::targets::Candidate;

pub use deletion::{Doomed, plan_deletion};
pub use step::{GroupRef, Planned, Step};

/// What is to be done, in order, and what is left for later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The steps, each with its reason.
    pub steps: Vec<Planned>,
    /// Targets that look gone but are too many to be taken away on one look.
    pub unconfirmed: BTreeSet<InstanceId>,
    /// The targets after the steps.
    pub targets: BTreeSet<InstanceId>,
}

impl Plan {
    /// Whether the steps change targets only, as they do when nodes come and go.
    #[must_use]
    pub fn changes_targets_only(&self) -> bool {
        let of_targets = |planned: &Planned| matches!(planned.step, Step::Register(_) | Step::Deregister(_));
        !self.steps.is_empty() && self.steps.iter().all(of_targets)
    }
}

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// What the Service asks for.
    pub desired: &'a Desired,
    /// What holds for all Services.
    pub settings: &'a Settings,
    /// What AWS has.
    pub observed: &'a Observed,
    /// The Nodes that may be targets.
    pub candidates: &'a [Candidate],
    /// Targets that an earlier look found gone.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

/// The plan for a Service that wants a load balancer.
///
/// # Errors
/// When AWS's world does not allow what is asked for; then nothing is to be done at all.
pub fn plan(question: Question<'_>) -> Result<Plan, World> {
    let Question { desired, observed, .. } = question;
    let groups = groups::wanted(desired, observed.own_group.as_ref());
    let subnets = wanted_subnets(question)?;
    let mut steps = groups::own(desired, observed)?;
    let existing = match &observed.load_balancer {
        Some(existing) => {
            steps.extend(balancer::placement(desired, observed, existing, &subnets, &groups));
            existing.clone()
        }
        None => {
            steps.push(creation(desired, &subnets, &groups));
            fresh(desired)
        }
    };
    steps.extend(balancer::settings(desired, &existing));
    let targets = targets::change(question, &existing);
    let rules = groups::of_nodes(question, groups.first(), &targets.after)?;
    steps.extend(rules.add);
    steps.extend(targets.steps);
    steps.extend(rules.remove);
    steps.extend(groups::leftover(question));
    Ok(Plan {
        steps,
        unconfirmed: targets.unconfirmed,
        targets: targets.after,
    })
}

fn wanted_subnets(question: Question<'_>) -> Result<Vec<Subnet>, World> {
    let Question {
        desired,
        settings,
        observed,
        ..
    } = question;
    let none = BTreeSet::new();
    let attached = observed
        .load_balancer
        .as_ref()
        .map_or(&none, |existing| &existing.described.subnets);
    match &desired.subnets {
        Subnets::Discover => subnets::choose(
            &observed.subnets,
            &observed.route_tables,
            &observed.zones,
            subnets::Question {
                vpc_id: &settings.vpc_id,
                cluster_id: &settings.cluster_id,
                internal: desired.internal,
                own_subnet: settings.own_subnet_id.as_deref(),
                attached,
            },
        ),
        Subnets::Listed { ids, names } => {
            let named = |subnet: &Subnet| subnet.tags.get("Name").is_some_and(|name| names.contains(name));
            let listed = observed
                .subnets
                .iter()
                .filter(|subnet| ids.contains(&subnet.id) || named(subnet));
            let found: Vec<Subnet> = listed.cloned().collect();
            let listed = ids.len() + names.len();
            if found.len() == listed {
                Ok(found)
            } else {
                Err(World::SubnetsMissing {
                    listed,
                    found: found.len(),
                })
            }
        }
    }
}

fn creation(desired: &Desired, subnets: &[Subnet], groups: &[GroupRef]) -> Planned {
    let new = NewLoadBalancer {
        name: desired.name.clone(),
        internal: desired.internal,
        listeners: desired.listeners.clone(),
        subnets: subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        security_groups: Vec::new(),
        tags: desired.tags.clone(),
    };
    Planned::new(
        Step::CreateLoadBalancer {
            new,
            groups: groups.to_vec(),
        },
        "AWS has no load balancer of this name",
    )
}

/// What AWS makes of a creation. A wrong guess costs no more than a repair at the next look.
fn fresh(desired: &Desired) -> Existing {
    Existing {
        described: LoadBalancer {
            name: desired.name.clone(),
            listeners: desired.listeners.clone(),
            ..LoadBalancer::default()
        },
        attributes: Attributes {
            cross_zone: Some(false),
            access_log: Some(AccessLog::default()),
            connection_draining: Some(false),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        },
        tags: desired.tags.clone(),
    }
}
