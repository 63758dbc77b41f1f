//! Defects planted in the record of a run, each of which must break a bound.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_timeline::{AwsCall, Claim, Inputs, LoadBalancer, Side, Statement};

use super::false_status;
use super::scenario::Scenario;

pub(super) const OURS: &str = "outrigger-manager";
pub(super) const OLD: &str = "kube-controller-manager";
/// From the end of an old process to an acquisition that does not wait for its lease.
const EARLY: SignedDuration = SignedDuration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Our manager reads a load balancer while another process owns it, as one that ignores the lease would.
    Overlap,
    /// Our manager writes to AWS although no Service changed.
    NeedlessWrite,
    /// Our manager writes to AWS before it holds the lease.
    WriteWithoutLease,
    /// Each acquisition of M is five seconds later.
    Gap,
    Recreated,
    LostTarget,
    /// The status names an owner that never held a lease.
    Status,
    /// The status names an observer that never led.
    Observer,
    /// The status has a false condition of this claim.
    Condition(Claim),
    /// Our manager never reads one of the load balancers.
    Unread,
    /// A Node that joined is never registered with one of the load balancers.
    LateTarget,
    /// A route of a Node is deleted.
    LostRoute,
    /// Our manager acquires M three seconds after the end of the old process, instead of waiting for its lease.
    EarlyAcquisition,
}

impl Mutation {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let others = [
            Self::Overlap,
            Self::NeedlessWrite,
            Self::WriteWithoutLease,
            Self::Gap,
            Self::Recreated,
            Self::LostTarget,
            Self::Status,
            Self::Observer,
            Self::Unread,
            Self::LateTarget,
            Self::LostRoute,
            Self::EarlyAcquisition,
        ];
        others.into_iter().chain(Claim::ALL.map(Self::Condition))
    }

    /// Whether this scenario has the bound that it breaks.
    pub(super) fn concerns(self, scenario: Scenario) -> bool {
        match self {
            Self::Unread | Self::LateTarget => scenario == Scenario::Scale,
            Self::LostRoute => scenario == Scenario::BothRoutes,
            Self::EarlyAcquisition => scenario == Scenario::LateWrite,
            _ => true,
        }
    }

    pub(super) fn name(self) -> String {
        let name = match self {
            Self::Overlap => "overlap",
            Self::NeedlessWrite => "needless-write",
            Self::WriteWithoutLease => "write-without-lease",
            Self::Gap => "gap",
            Self::Recreated => "recreated",
            Self::LostTarget => "lost-target",
            Self::Status => "status",
            Self::Observer => "observer",
            Self::Condition(claim) => return format!("condition-{claim:?}"),
            Self::Unread => "unread",
            Self::LateTarget => "late-target",
            Self::LostRoute => "lost-route",
            Self::EarlyAcquisition => "early-acquisition",
        };
        name.to_owned()
    }

    /// Whether a violation shows this defect, and not one that it causes beside.
    pub(super) fn is_shown_by(self, violation: &str) -> bool {
        match self {
            Self::Condition(claim) => violation.contains(&false_status::name(claim)),
            Self::Observer => violation.contains("observedBy"),
            _ => true,
        }
    }

    pub(super) fn plant(self, record: &mut Inputs) {
        match self {
            Self::Overlap => overlap(record),
            Self::NeedlessWrite => write(record, end_of(record)),
            Self::WriteWithoutLease => {
                let started = record.processes.iter().filter(|span| span.component == OURS);
                if let Some(started) = started.map(|span| span.started).min() {
                    write(record, started);
                }
            }
            Self::Gap => {
                let late = SignedDuration::from_secs(5);
                let changes = record.lease_changes.iter_mut();
                for change in changes.filter(|change| change.lease == Lease::M) {
                    change.at += late;
                    change.acquired = change.acquired.map(|at| at + late);
                }
            }
            Self::Recreated => last_balancers(record).for_each(|balancer| balancer.dns_name.push('2')),
            Self::LostTarget => last_balancers(record).for_each(|balancer| drop(balancer.targets.pop_first())),
            Self::Status => record.statements.push(Statement {
                at: end_of(record),
                owner: Some(Side::Old),
                holder: Some("nobody_0".to_owned()),
                ..Statement::default()
            }),
            Self::Observer => false_status::plant_observer(record),
            Self::Condition(claim) => false_status::plant(claim, record),
            Self::Unread => drop_calls(record, |record, call, names| {
                component(record, &call.caller) == Some(OURS) && call.names_any(names)
            }),
            Self::LateTarget => drop_calls(record, |record, call, names| {
                let mut joins = record.joins.iter();
                call.action.starts_with("Register")
                    && call.names_any(names)
                    && joins.any(|join| call.parameters.values().any(|value| *value == join.target))
            }),
            Self::LostRoute => {
                let last = record.snapshots.last_mut();
                drop(last.and_then(|last| last.routes.pop_first()));
            }
            Self::EarlyAcquisition => acquire_early(record),
        }
    }
}

/// The load balancers of the last snapshot.
fn last_balancers(record: &mut Inputs) -> impl Iterator<Item = &mut LoadBalancer> {
    let last = record.snapshots.last_mut().into_iter();
    last.flat_map(|last| last.load_balancers.values_mut())
}

/// Our manager writes between two AWS calls of the first old one.
fn overlap(record: &mut Inputs) {
    let by_old =
        |call: &&AwsCall| call.service == "elasticloadbalancing" && !call.caller.starts_with(OURS) && !call.preflight;
    let first = record.aws_calls.iter().find(by_old).cloned();
    if let (Some(first), Some(ours)) = (first, ours(record)) {
        let of_first = record.aws_calls.iter().filter(|call| call.caller == first.caller);
        let last = of_first.map(|call| call.at).max().unwrap_or(first.at);
        let middle = first.at + first.at.duration_until(last) / 2;
        record.aws_calls.push(AwsCall {
            at: middle,
            done: middle,
            caller: ours,
            ..first
        });
    }
}

/// Removes the calls that concern the last load balancer of the first snapshot.
fn drop_calls(record: &mut Inputs, is_dropped: impl Fn(&Inputs, &AwsCall, &BTreeSet<String>) -> bool) {
    let first = record.snapshots.first();
    let Some((name, balancer)) = first.and_then(|first| first.load_balancers.last_key_value()) else {
        return;
    };
    let names = balancer.identifiers.iter().chain([name]).cloned().collect();
    let kept = record.aws_calls.iter().filter(|call| !is_dropped(record, call, &names));
    record.aws_calls = kept.cloned().collect();
}

/// Moves our first acquisition of M.
fn acquire_early(record: &mut Inputs) {
    let of_ours = |change: &&LeaseChange| {
        let holder = change.holder.as_ref().and_then(|holder| record.holders.get(holder));
        change.lease == Lease::M && holder.and_then(|process| component(record, process)) == Some(OURS)
    };
    let changes = record.lease_changes.iter().filter(of_ours);
    let Some(first) = changes.min_by_key(|change| change.at) else {
        return;
    };

    let (seen, acquired, holder) = (first.at, first.acquired, first.holder.clone());
    let ends = record.processes.iter().filter(|span| span.component == OLD);
    let ends = ends.filter_map(|span| span.ended).filter(|ended| *ended < seen);
    let Some(early) = ends.max().map(|ended| ended + EARLY) else {
        return;
    };
    for change in &mut record.lease_changes {
        if change.lease == Lease::M && change.holder == holder && change.acquired == acquired {
            change.acquired = Some(early);
            change.at = if change.at == seen { early } else { change.at };
        }
    }
}

/// The component of a process.
pub(super) fn component<'a>(record: &'a Inputs, process: &str) -> Option<&'a str> {
    let span = record.processes.iter().find(|span| span.process == process)?;
    Some(&span.component)
}

fn ours(record: &Inputs) -> Option<String> {
    let mut ours = record.processes.iter().filter(|span| span.component == OURS);
    ours.next().map(|span| span.process.clone())
}

fn end_of(record: &Inputs) -> Timestamp {
    record.until - SignedDuration::from_secs(1)
}

pub(super) fn write(record: &mut Inputs, at: Timestamp) {
    let snapshots = record.snapshots.iter();
    let mut balancers = snapshots.flat_map(|snapshot| snapshot.load_balancers.keys());
    // Of the first snapshot: a later one may have a load balancer that is new work.
    let (Some(name), Some(caller)) = (balancers.next().cloned(), ours(record)) else {
        return;
    };
    record.aws_calls.push(AwsCall {
        at,
        caller,
        service: "elasticloadbalancing".to_owned(),
        action: "ModifyLoadBalancerAttributes".to_owned(),
        preflight: false,
        is_write: true,
        parameters: [("LoadBalancerName".to_owned(), name)].into(),
        status: 200,
        done: at,
    });
}
