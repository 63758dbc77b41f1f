//! Effects of the handover on AWS: unneeded writes, late ones, load balancers recreated, targets lost and added late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::attribute::{self, Actor};
use super::input::{AwsCall, Inputs, Join, LoadBalancer, NEW_WORK_BEGINS, Snapshot};
use super::overlap::since;
use super::rules::{Rules, Side};
use super::tenure::Tenure;
use outrigger_cluster_harness::leases::Lease;

/// Writes of our manager that no change of desired state called for.
///
/// Before the marker [`NEW_WORK_BEGINS`] that is every write (all of them, where the marker is missing); after it,
/// those that name something unchanged and nothing changed. A refused write counts as well: it was meant.
pub(super) fn writes_by_switch(inputs: &Inputs, rules: &Rules) -> Vec<AwsCall> {
    let new_work = inputs
        .markers
        .iter()
        .filter(|marker| marker.name == NEW_WORK_BEGINS)
        .map(|marker| marker.at)
        .min();
    inputs
        .writes()
        .filter(|call| !rules.ignored_callers.contains(&call.caller))
        .filter(|call| attribute::caller(call, inputs, rules).side != Side::Old)
        .filter(|call| {
            new_work.is_none_or(|begins| call.at < begins)
                || (call.names_any(&rules.unchanged) && !call.names_any(&rules.changed))
        })
        .cloned()
        .collect()
}

/// Names of load balancers that are gone, or are others under the same name.
pub(super) fn recreated(inputs: &Inputs, rules: &Rules) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (before, after) in steps(inputs) {
        for (name, old) in &before.load_balancers {
            let same = after.load_balancers.get(name).is_some_and(|new| is_same(old, new));
            if !same {
                found.insert(name.clone());
            }
        }
    }

    // Between two snapshots a load balancer may have gone and come back under the same name.
    for action in ["DeleteLoadBalancer", "DeleteTargetGroup"] {
        for call in calls(inputs, action) {
            found.extend(named_before(inputs, call).map(|(name, _)| name));
        }
    }

    found.retain(|name| !rules.removed_on_purpose.contains(name));

    found
}

/// Targets, with the load balancer that had them, that were there and then were not.
pub(super) fn lost_targets(inputs: &Inputs, rules: &Rules) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (before, after) in steps(inputs) {
        for (name, old) in &before.load_balancers {
            let new = after.load_balancers.get(name).map(|new| &new.targets);
            let gone = old
                .targets
                .iter()
                .filter(|target| !new.is_some_and(|new| new.contains(*target)));
            found.extend(gone.map(|target| (name.clone(), target.clone())));
        }
    }

    for action in ["DeregisterInstancesFromLoadBalancer", "DeregisterTargets"] {
        for call in calls(inputs, action) {
            for (name, before) in named_before(inputs, call) {
                let targets = call
                    .parameters
                    .values()
                    .filter(|target| before.targets.contains(*target));
                found.extend(targets.map(|target| (name.clone(), target.clone())));
            }
        }
    }

    let on_purpose = &rules.removed_on_purpose;
    found.retain(|(name, target)| !on_purpose.contains(name) && !on_purpose.contains(target));

    found
}

/// Routes to instances, as table and range, that were there and then were not, or led elsewhere.
pub(super) fn lost_routes(inputs: &Inputs) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (before, after) in steps(inputs) {
        let lost = before
            .routes
            .iter()
            .filter(|(route, instance)| after.routes.get(route) != Some(*instance));
        found.extend(lost.map(|((table, range), _)| format!("{table} {range}")));
    }

    // Between two snapshots a route may have gone and come back.
    let known = |call: &AwsCall| {
        let seen = inputs.snapshots.iter().filter(|snapshot| snapshot.at <= call.at);
        let values = |value: &String| call.parameters.values().any(|own| own == value);
        let routes = seen.flat_map(|snapshot| snapshot.routes.keys());
        let named = routes.filter(|(table, range)| values(table) && values(range));
        named
            .map(|(table, range)| format!("{table} {range}"))
            .collect::<Vec<_>>()
    };
    let deleted = inputs.aws_calls.iter().filter(|call| {
        call.service == "ec2" && call.action == "DeleteRoute" && call.succeeded() && call.at <= inputs.until
    });
    found.extend(deleted.flat_map(known));
    found
}

/// Snapshots in order, each with the next.
fn steps(inputs: &Inputs) -> Vec<(&Snapshot, &Snapshot)> {
    let mut snapshots: Vec<_> = inputs
        .snapshots
        .iter()
        .filter(|snapshot| snapshot.at <= inputs.until)
        .collect();

    snapshots.sort_by_key(|snapshot| snapshot.at);
    snapshots
        .iter()
        .copied()
        .zip(snapshots.iter().copied().skip(1))
        .collect()
}

fn calls<'a>(inputs: &'a Inputs, action: &'a str) -> impl Iterator<Item = &'a AwsCall> {
    inputs.aws_calls.iter().filter(move |call| {
        call.service == "elasticloadbalancing" && call.action == action && call.succeeded() && call.at <= inputs.until
    })
}

/// The load balancers of the snapshots before a call that it names, as they were then.
fn named_before<'a>(inputs: &'a Inputs, call: &'a AwsCall) -> impl Iterator<Item = (String, &'a LoadBalancer)> {
    let before = inputs.snapshots.iter().filter(|snapshot| snapshot.at <= call.at);
    let all = before.flat_map(|snapshot| &snapshot.load_balancers);
    let named = all.filter(|(name, seen)| call.names(name, seen));
    named.map(|(name, seen)| (name.clone(), seen))
}

fn is_same(old: &LoadBalancer, new: &LoadBalancer) -> bool {
    new.dns_name == old.dns_name && new.created == old.created && new.identifiers.is_superset(&old.identifiers)
}

/// AWS writes of our manager outside of its tenures of the lease that guards the controller. A process that was stopped
/// and continued must not write on what it believed before.
pub(super) fn writes_without_lease(inputs: &Inputs, tenures: &[Tenure], rules: &Rules) -> Vec<AwsCall> {
    let ours = |call: &AwsCall| {
        let process = inputs.process(&call.caller)?;
        let is_new = rules.side_of(&process.component) == Side::New;
        let lease = rules.governing(attribute::of_aws_call(call)?, process)?;
        is_new.then_some(lease)
    };
    let held = |lease: Lease, call: &AwsCall| {
        let of_process = |tenure: &&Tenure| tenure.lease == lease && tenure.actor.names.contains(&call.caller);
        let mut tenures = tenures.iter().filter(of_process);
        tenures.any(|tenure| tenure.contains(call.at) && call.at < tenure.expires)
    };

    inputs
        .writes()
        .filter(|call| ours(call).is_some_and(|lease| !held(lease, call)))
        .cloned()
        .collect()
}

/// An AWS write that was sent before, and carried out after another process acquired the lease of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateEffect {
    pub call: AwsCall,
    /// From the acquisition to the effect.
    pub after: Duration,
}

/// The late effects of every process, of either side. AWS carries out what it has received, whether or not the sender
/// still runs.
pub(super) fn late_effects(inputs: &Inputs, tenures: &[Tenure], rules: &Rules) -> Vec<LateEffect> {
    let carried_out = inputs.writes().filter(|call| call.succeeded());
    let late = carried_out.filter_map(|call| {
        let process = inputs.process(&call.caller)?;
        let lease = rules.governing(attribute::of_aws_call(call)?, process)?;
        let by_other = |tenure: &&Tenure| {
            tenure.lease == lease
                && !tenure.actor.names.contains(&call.caller)
                && call.at < tenure.from
                && tenure.from < call.done
        };
        let next = tenures.iter().filter(by_other).map(|tenure| tenure.from).min()?;
        Some(LateEffect {
            call: call.clone(),
            after: since(next, call.done),
        })
    });
    late.collect()
}

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
        let last = registered(&inputs.aws_calls, inputs.balancers_at(join.at)?, join);
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
        let of_it = registrations.iter().filter(|call| call.names(name, balancer));
        of_it.map(|call| call.done).min()
    });
    first.collect::<Option<Vec<_>>>()?.into_iter().max()
}
