//! Effects of the handover on AWS: unneeded writes, load balancers recreated, targets lost.

use std::collections::BTreeSet;

use super::attribute;
use super::input::{AwsCall, Inputs, NEW_WORK_BEGINS, Snapshot};
use super::rules::{Rules, Side};

/// Writes of our manager that no change of desired state called for.
///
/// Before the marker [`NEW_WORK_BEGINS`] that is every write (all of them, where the marker is missing); after it,
/// those that name something unchanged and nothing changed. A refused write counts as well: it was meant.
pub(super) fn writes_by_switch<'a>(inputs: &'a Inputs, rules: &Rules) -> Vec<&'a AwsCall> {
    let new_work = inputs
        .markers
        .iter()
        .filter(|marker| marker.name == NEW_WORK_BEGINS)
        .map(|marker| marker.at)
        .min();
    inputs
        .aws_calls
        .iter()
        .filter(|call| call.is_write && !call.is_dry_run() && call.at <= inputs.until)
        .filter(|call| !rules.ignored_callers.contains(&call.caller))
        .filter(|call| attribute::caller(call, inputs, rules).side != Side::Old)
        .filter(|call| {
            new_work.is_none_or(|begins| call.at < begins)
                || (call.names_any(&rules.unchanged) && !call.names_any(&rules.changed))
        })
        .collect()
}

/// Names of load balancers that are gone, or are others under the same name.
pub(super) fn recreated(inputs: &Inputs, rules: &Rules) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (before, after) in steps(inputs) {
        for (name, old) in &before.load_balancers {
            let same = after
                .load_balancers
                .get(name)
                .is_some_and(|new| new.dns_name == old.dns_name && new.created == old.created);
            if !same {
                found.insert(name.clone());
            }
        }
    }

    // Between two snapshots a load balancer may have gone and come back under the same name.
    for call in calls(inputs, "DeleteLoadBalancer") {
        found.extend(
            call.parameters
                .get("LoadBalancerName")
                .filter(|name| seen_before(inputs, call, name))
                .cloned(),
        );
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

    for call in calls(inputs, "DeregisterInstancesFromLoadBalancer") {
        let Some(name) = call.parameters.get("LoadBalancerName") else {
            continue;
        };

        let targets = call
            .parameters
            .values()
            .filter(|target| had_target(inputs, call, name, target));
        found.extend(targets.map(|target| (name.clone(), target.clone())));
    }

    let on_purpose = &rules.removed_on_purpose;
    found.retain(|(name, target)| !on_purpose.contains(name) && !on_purpose.contains(target));

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

fn seen_before(inputs: &Inputs, call: &AwsCall, name: &str) -> bool {
    inputs
        .snapshots
        .iter()
        .any(|snapshot| snapshot.at <= call.at && snapshot.load_balancers.contains_key(name))
}

fn had_target(inputs: &Inputs, call: &AwsCall, name: &str, target: &str) -> bool {
    inputs
        .snapshots
        .iter()
        .filter(|snapshot| snapshot.at <= call.at)
        .any(|snapshot| {
            snapshot
                .load_balancers
                .get(name)
                .is_some_and(|load_balancer| load_balancer.targets.contains(target))
        })
}
