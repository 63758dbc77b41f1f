//! How long it took until a Node that joined while M changed hands was a target of every load balancer.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::attribute::Actor;
use super::input::{AwsCall, Inputs, Join, LoadBalancer};
use super::overlap::since;
use super::tenure::Tenure;
use outrigger_cluster_harness::leases::Lease;

/// A Node that joined while M changed hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The ID of its instance.
    pub target: String,
    /// The holder of M from then on.
    pub owner: Actor,
    /// From the acquisition of M, or from the join where that was later, until the instance was a target of every load
    /// balancer; `None` when it did not become one of each.
    pub took: Option<Duration>,
}

pub(super) fn joined(inputs: &Inputs, tenures: &[Tenure]) -> Vec<Joined> {
    let one = |join: &Join| {
        let mut of_m = tenures.iter().filter(|tenure| tenure.lease == Lease::M);
        let owner = of_m.find(|tenure| join.at < tenure.until)?;
        let before = inputs.snapshots.iter().filter(|snapshot| snapshot.at <= join.at);
        let balancers = &before.max_by_key(|snapshot| snapshot.at)?.load_balancers;
        let last = registered(&inputs.aws_calls, balancers, join);
        Some(Joined {
            target: join.target.clone(),
            owner: owner.actor.clone(),
            took: last.map(|last| since(join.at.max(owner.from), last)),
        })
    };
    inputs.joins.iter().filter_map(one).collect()
}

/// When AWS had registered the instance with the last of these load balancers.
pub fn registered(calls: &[AwsCall], balancers: &BTreeMap<String, LoadBalancer>, join: &Join) -> Option<Timestamp> {
    let registers = |call: &&AwsCall| {
        call.action.starts_with("Register")
            && join.at <= call.at
            && call.succeeded()
            && call.parameters.values().any(|value| *value == join.target)
    };
    let registrations: Vec<_> = calls.iter().filter(registers).collect();
    let first = balancers.iter().map(|(name, balancer)| {
        let names = |value: &String| value == name || balancer.identifiers.contains(value);
        let of_it = registrations.iter().filter(|call| call.parameters.values().any(names));
        of_it.map(|call| call.done).min()
    });
    first.collect::<Option<Vec<_>>>()?.into_iter().max()
}
