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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Marker;
    use crate::rules::Component;
    use crate::samples::{actor, at, call, process, tenure};

    const REGISTER: &str = "RegisterInstancesWithLoadBalancer";

    /// A write of the process `ours`, received at one second and carried out at the other.
    fn write(received: i64, done: i64) -> AwsCall {
        AwsCall {
            at: at(received),
            done: at(done),
            caller: "ours".into(),
            is_write: true,
            ..call("elasticloadbalancing", "CreateLoadBalancer", &[])
        }
    }

    fn run(aws_calls: Vec<AwsCall>) -> Inputs {
        Inputs {
            aws_calls,
            processes: vec![process("ours", "outrigger-manager", &["--migration=prod"], 0, None)],
            until: at(100),
            ..Inputs::default()
        }
    }

    fn rules() -> Rules {
        Rules::new(Component::outrigger_manager())
    }

    /// A load balancer `lb` with these targets, and a route.
    fn snapshot(second: i64, targets: &[&str]) -> Snapshot {
        let balancer = LoadBalancer {
            dns_name: String::new(),
            created: String::new(),
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            identifiers: [].into(),
        };
        let route = ("rtb-1".to_owned(), "10.0.1.0/24".to_owned());
        Snapshot {
            at: at(second),
            load_balancers: [("lb".to_owned(), balancer)].into(),
            routes: [(route, "i-1".to_owned())].into(),
        }
    }

    #[test]
    fn every_write_of_ours_before_new_work_begins_is_needless_except_a_dry_run() {
        let needless = |call: AwsCall| {
            let mut inputs = run(vec![call]);
            inputs.markers = [(5, "phase Migrate"), (20, NEW_WORK_BEGINS)]
                .map(|(second, name)| Marker {
                    at: at(second),
                    name: name.into(),
                })
                .into();
            writes_by_switch(&inputs, &rules()).len()
        };
        for (second, expected) in [(4, 1), (19, 1), (20, 0), (30, 0)] {
            assert_eq!(needless(write(second, second)), expected, "{second}");
        }
        let mut dry_run = write(19, 19);
        dry_run.parameters.insert("DryRun".into(), "true".into());
        assert_eq!(needless(dry_run), 0);
    }

    #[test]
    fn a_load_balancer_was_recreated_when_it_was_deleted_after_a_snapshot_with_it() {
        for (second, expected) in [(4, &[][..]), (5, &["lb"]), (30, &["lb"])] {
            let deleted = AwsCall {
                at: at(second),
                ..call(
                    "elasticloadbalancing",
                    "DeleteLoadBalancer",
                    &[("LoadBalancerName", "lb")],
                )
            };
            let mut inputs = run(vec![deleted]);
            inputs.snapshots = vec![snapshot(5, &[]), snapshot(50, &[])];
            let found: Vec<_> = recreated(&inputs, &rules()).into_iter().collect();
            assert_eq!(found, expected, "{second}");
        }
    }

    #[test]
    fn a_target_is_not_lost_when_it_or_its_load_balancer_was_removed_on_purpose() {
        let mut inputs = run(Vec::new());
        inputs.snapshots = vec![snapshot(5, &["i-1", "i-2"]), snapshot(50, &["i-1"])];
        for (on_purpose, lost) in [("i-1", true), ("i-2", false), ("lb", false)] {
            let mut rules = rules();
            rules.removed_on_purpose = [on_purpose.to_owned()].into();
            assert_eq!(!lost_targets(&inputs, &rules).is_empty(), lost, "{on_purpose}");
        }
    }

    #[test]
    fn a_route_was_lost_when_a_call_of_the_run_deleted_it_after_a_snapshot_with_it() {
        let delete = |second, table, range| AwsCall {
            at: at(second),
            ..call(
                "ec2",
                "DeleteRoute",
                &[("RouteTableId", table), ("DestinationCidrBlock", range)],
            )
        };
        let (table, range) = ("rtb-1", "10.0.1.0/24");
        let lost = |call: AwsCall| {
            let mut inputs = run(vec![call]);
            inputs.snapshots = vec![snapshot(5, &[]), snapshot(50, &[])];
            lost_routes(&inputs).contains("rtb-1 10.0.1.0/24")
        };
        for second in [5, 30, 100] {
            assert!(lost(delete(second, table, range)), "{second}");
        }
        assert!(!lost(delete(4, table, range)), "before the first snapshot");
        assert!(!lost(delete(101, table, range)), "after the run");
        assert!(!lost(delete(30, "rtb-2", range)), "of another table");
        assert!(!lost(delete(30, table, "10.0.2.0/24")), "to another range");
        let refused = AwsCall {
            status: 400,
            ..delete(30, table, range)
        };
        assert!(!lost(refused), "refused");
        let created = AwsCall {
            action: "CreateRoute".into(),
            ..delete(30, table, range)
        };
        assert!(!lost(created), "created");
    }

    #[test]
    fn a_lease_permits_writes_until_it_expires_even_when_nobody_else_acquires_it() {
        let held = Tenure {
            expires: at(20),
            ..tenure(Lease::M, "ours", Side::New, (5, 60))
        };
        for (second, expected) in [(4, 1), (5, 0), (19, 0), (20, 1), (30, 1)] {
            let inputs = run(vec![write(second, second)]);
            let found = writes_without_lease(&inputs, std::slice::from_ref(&held), &rules());
            assert_eq!(found.len(), expected, "{second}");
        }
    }

    #[test]
    fn an_effect_is_late_when_another_process_acquired_the_lease_of_its_sender_before_it() {
        let after = |call: AwsCall, lease, name, acquired| {
            let acquired = tenure(lease, name, Side::New, (acquired, 60));
            let found = late_effects(&run(vec![call]), &[acquired], &rules());
            found.first().map(|effect| effect.after.as_secs())
        };
        let sent = write(10, 20);
        for (acquired, expected) in [
            (9, None),
            (10, None),
            (11, Some(9)),
            (19, Some(1)),
            (20, None),
            (21, None),
        ] {
            assert_eq!(after(sent.clone(), Lease::M, "next", acquired), expected, "{acquired}");
        }
        for acquired in [9, 15, 21] {
            assert_eq!(after(sent.clone(), Lease::C, "next", acquired), None, "another lease");
            assert_eq!(
                after(sent.clone(), Lease::M, "ours", acquired),
                None,
                "the same process"
            );
        }
        let refused = AwsCall { status: 403, ..sent };
        assert_eq!(after(refused, Lease::M, "next", 15), None, "without an effect");
    }

    #[test]
    fn a_node_that_joins_when_a_tenure_ends_belongs_to_the_next_holder() {
        let holders = [
            tenure(Lease::M, "ours", Side::New, (5, 20)),
            tenure(Lease::M, "next", Side::New, (25, 60)),
        ];
        for (second, owner) in [(4, "ours"), (19, "ours"), (20, "next"), (59, "next")] {
            let mut inputs = run(Vec::new());
            inputs.snapshots = vec![snapshot(0, &[])];
            inputs.joins = vec![Join {
                at: at(second),
                target: "i-2".into(),
            }];
            let expected = Joined {
                target: "i-2".into(),
                owner: actor(&[owner], Side::New),
                took: None,
            };
            assert_eq!(joined(&inputs, &holders), [expected], "{second}");
        }
    }

    #[test]
    fn an_instance_is_registered_by_an_accepted_registration_after_its_node_joined() {
        let join = Join {
            at: at(10),
            target: "i-2".into(),
        };
        let balancers = snapshot(0, &[]).load_balancers;
        let register = |second, action, instance| AwsCall {
            at: at(second),
            done: at(second + 2),
            ..call(
                "elasticloadbalancing",
                action,
                &[("LoadBalancerName", "lb"), ("Instances.member.1.InstanceId", instance)],
            )
        };
        let at_last = |call: AwsCall| registered(&[call], &balancers, &join);
        for second in [10, 15] {
            assert_eq!(at_last(register(second, REGISTER, "i-2")), Some(at(second + 2)));
        }
        assert_eq!(at_last(register(9, REGISTER, "i-2")), None, "earlier");
        assert_eq!(at_last(register(15, REGISTER, "i-3")), None, "another instance");
        let deregister = register(15, "DeregisterInstancesFromLoadBalancer", "i-2");
        assert_eq!(at_last(deregister), None, "the opposite");
        let refused = AwsCall {
            status: 400,
            ..register(15, REGISTER, "i-2")
        };
        assert_eq!(at_last(refused), None, "refused");
    }
}
