//! Defects planted in the record of a run, each of which must break a bound.

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::{AwsCall, Inputs, Side, Statement};

const OURS: &str = "outrigger-manager";

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
}

impl Mutation {
    pub(super) const ALL: [Self; 7] = [
        Self::Overlap,
        Self::NeedlessWrite,
        Self::WriteWithoutLease,
        Self::Gap,
        Self::Recreated,
        Self::LostTarget,
        Self::Status,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::NeedlessWrite => "needless-write",
            Self::WriteWithoutLease => "write-without-lease",
            Self::Gap => "gap",
            Self::Recreated => "recreated",
            Self::LostTarget => "lost-target",
            Self::Status => "status",
        }
    }

    pub(super) fn plant(self, record: &mut Inputs) {
        match self {
            Self::Overlap => {
                let by_old = |call: &&AwsCall| {
                    call.service == "elasticloadbalancing" && !call.caller.starts_with(OURS) && !call.preflight
                };
                let first = record.aws_calls.iter().find(by_old).cloned();
                if let (Some(first), Some(ours)) = (first, ours(record)) {
                    let of_first = record.aws_calls.iter().filter(|call| call.caller == first.caller);
                    let last = of_first.map(|call| call.at).max().unwrap_or(first.at);
                    let middle = first.at + first.at.duration_until(last) / 2;
                    record.aws_calls.push(AwsCall {
                        at: middle,
                        caller: ours,
                        ..first
                    });
                }
            }
            Self::NeedlessWrite => write(record, end_of(record)),
            Self::WriteWithoutLease => {
                let started = record.processes.iter().filter(|span| span.component == OURS);
                if let Some(started) = started.map(|span| span.started).min() {
                    write(record, started);
                }
            }
            Self::Gap => {
                let late = SignedDuration::from_secs(5);
                let of_m = record
                    .lease_changes
                    .iter_mut()
                    .filter(|change| change.lease == Lease::M);
                for change in of_m {
                    change.at += late;
                    change.acquired = change.acquired.map(|at| at + late);
                }
            }
            Self::Recreated => {
                let balancers = record.snapshots.last_mut().map(|last| &mut last.load_balancers);
                balancers
                    .into_iter()
                    .flatten()
                    .for_each(|(_, balancer)| balancer.dns_name.push('2'));
            }
            Self::LostTarget => {
                let balancers = record.snapshots.last_mut().map(|last| &mut last.load_balancers);
                balancers
                    .into_iter()
                    .flatten()
                    .for_each(|(_, balancer)| drop(balancer.targets.pop_first()));
            }
            Self::Status => record.statements.push(Statement {
                at: end_of(record),
                owner: Some(Side::Old),
                holder: Some("nobody_0".to_owned()),
                conditions: Vec::new(),
            }),
        }
    }
}

fn ours(record: &Inputs) -> Option<String> {
    let mut ours = record.processes.iter().filter(|span| span.component == OURS);
    ours.next().map(|span| span.process.clone())
}

fn end_of(record: &Inputs) -> Timestamp {
    record.until - SignedDuration::from_secs(1)
}

fn write(record: &mut Inputs, at: Timestamp) {
    let balancers = record
        .snapshots
        .iter()
        .flat_map(|snapshot| snapshot.load_balancers.keys());
    let (Some(name), Some(caller)) = (balancers.last().cloned(), ours(record)) else {
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
    });
}
