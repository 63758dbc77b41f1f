//! From the calls and the leases of a process: from when until when it owned a controller.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::attribute::{self, Actor};
use super::input::Inputs;
use super::rules::{Controller, Rules};
use super::tenure::Tenure;
use outrigger_cluster_harness::leases::Lease;

/// One process's time with one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub actor: Actor,
    /// First call, or the lease's acquisition where leases count.
    pub from: Timestamp,
    /// Last call, or the end of the lease's tenure where leases count.
    pub until: Timestamp,
    /// AWS calls in it, reads included.
    pub aws_calls: usize,
    pub api_writes: usize,
    /// The lease whose tenure is part of it.
    pub lease: Option<Lease>,
}

struct Evidence {
    from: Timestamp,
    until: Timestamp,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    AwsCall,
    ApiWrite,
    Tenure(Lease),
}

/// True where a lease alone is ownership: controllers that make no call while nothing happens.
fn counts_leases(controller: Controller) -> bool {
    match controller {
        Controller::Service => false,
        Controller::NodeLifecycle | Controller::Route => true,
    }
}

/// All intervals of `controller`, in the order of their starts.
pub(super) fn intervals(controller: Controller, tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Interval> {
    let mut by_actor: BTreeMap<Actor, Vec<Evidence>> = BTreeMap::new();
    for (actor, evidence) in evidence(controller, tenures, inputs, rules) {
        by_actor.entry(actor).or_default().push(evidence);
    }

    let mut intervals = Vec::new();
    for (actor, mut evidence) in by_actor {
        evidence.sort_by_key(|evidence| evidence.from);
        // A process that lost the lease or was stopped by a signal comes back: what it did before belongs to its earlier
        // interval. The first acquisition is no such moment, so that a call made before it stretches the interval.
        let acquired = tenures
            .iter()
            .filter(|tenure| tenure.actor == actor && governs(tenure, controller, inputs, rules))
            .map(|tenure| tenure.from);
        let continued = inputs.pauses_of(&actor.names).filter_map(|pause| pause.until);
        let returns: Vec<_> = acquired.skip(1).chain(continued).collect();
        intervals.extend(split(&actor, &evidence, &returns));
    }

    intervals.sort_by_key(|interval| (interval.from, interval.until));

    intervals
}

fn evidence(
    controller: Controller,
    tenures: &[Tenure],
    inputs: &Inputs,
    rules: &Rules,
) -> impl Iterator<Item = (Actor, Evidence)> {
    let calls = inputs
        .aws_calls
        .iter()
        .filter(move |call| call.at <= inputs.until && !rules.ignored_callers.contains(&call.caller))
        .filter(move |call| attribute::of_aws_call(call) == Some(controller))
        .map(|call| {
            let evidence = Evidence {
                from: call.at,
                until: call.at,
                kind: Kind::AwsCall,
            };
            (attribute::caller(call, inputs, rules), evidence)
        });

    let writes = inputs
        .audit_events
        .iter()
        .filter(move |event| event.request_received_timestamp <= inputs.until)
        .filter(move |event| attribute::of_api_write(event) == Some(controller))
        .filter_map(move |event| {
            let (from, until) = (event.request_received_timestamp, event.stage_timestamp);
            let evidence = Evidence {
                from,
                until: until.max(from),
                kind: Kind::ApiWrite,
            };
            Some((attribute::writer(event, controller, tenures, inputs, rules)?, evidence))
        });

    let held = tenures
        .iter()
        .filter(move |tenure| counts_leases(controller) && governs(tenure, controller, inputs, rules))
        .map(|tenure| {
            let evidence = Evidence {
                from: tenure.from,
                until: tenure.until,
                kind: Kind::Tenure(tenure.lease),
            };
            (tenure.actor.clone(), evidence)
        });

    calls.chain(writes).chain(held)
}

/// True when the lease of this tenure guards `controller` in its process. Of a holder that is no known process, M
/// is taken to guard everything.
pub(super) fn governs(tenure: &Tenure, controller: Controller, inputs: &Inputs, rules: &Rules) -> bool {
    let mut known = inputs.processes_named(&tenure.actor.names).peekable();
    if known.peek().is_none() {
        return tenure.lease == Lease::M;
    }

    known.any(|process| rules.governing(controller, process) == Some(tenure.lease))
}

/// One interval for all the evidence after the same return.
fn split(actor: &Actor, evidence: &[Evidence], returns: &[Timestamp]) -> Vec<Interval> {
    let mut intervals: Vec<(Option<&Timestamp>, Interval)> = Vec::new();
    for piece in evidence {
        let returned = returns.iter().filter(|at| **at <= piece.from).max();
        if intervals.last().is_none_or(|(last, _)| *last != returned) {
            let interval = Interval {
                actor: actor.clone(),
                from: piece.from,
                until: piece.until,
                aws_calls: 0,
                api_writes: 0,
                lease: None,
            };
            intervals.push((returned, interval));
        }

        if let Some((_, interval)) = intervals.last_mut() {
            interval.until = interval.until.max(piece.until);
            match piece.kind {
                Kind::AwsCall => interval.aws_calls += 1,
                Kind::ApiWrite => interval.api_writes += 1,
                Kind::Tenure(lease) => interval.lease = Some(lease),
            }
        }
    }

    intervals.into_iter().map(|(_, interval)| interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{AwsCall, Pause};
    use crate::rules::{Component, Side};
    use crate::samples::{at, call, process, tenure};

    #[test]
    fn of_an_unknown_holder_m_guards_every_controller_and_no_other_lease_does() {
        let rules = Rules::new(Component::outrigger_manager());
        for controller in Controller::ALL {
            for (lease, expected) in [(Lease::M, true), (Lease::K, false), (Lease::C, false)] {
                let held = tenure(lease, "unknown", Side::Unknown, (0, 10));
                let guards = governs(&held, controller, &Inputs::default(), &rules);
                assert_eq!(guards, expected, "{controller} {lease}");
            }
        }
    }

    #[test]
    fn an_interval_begins_with_the_first_call_at_or_after_each_return_of_the_process() {
        let calls = [5, 8, 10, 15, 22, 25].map(|second| AwsCall {
            at: at(second),
            ..call("elasticloadbalancing", "DescribeLoadBalancers", &[])
        });
        let pauses = [(9, 10), (16, 20)].map(|(from, until)| Pause {
            process: "x".into(),
            from: at(from),
            until: Some(at(until)),
        });
        let inputs = Inputs {
            aws_calls: calls.into(),
            pauses: pauses.into(),
            processes: vec![process("x", "outrigger-manager", &[], 0, None)],
            until: at(100),
            ..Inputs::default()
        };
        let rules = Rules::new(Component::outrigger_manager());
        let found = intervals(Controller::Service, &[], &inputs, &rules);
        let spans: Vec<_> = found.iter().map(|one| (one.from, one.until, one.aws_calls)).collect();
        assert_eq!(spans, [(at(5), at(8), 2), (at(10), at(15), 2), (at(22), at(25), 2)]);
    }
}
