//! The inputs of the timeline: everything that was recorded on one clock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use outrigger_aws_sim::Call;

use super::rules::Side;
use outrigger_cluster_harness::audit::AuditEvent;
use outrigger_cluster_harness::leases::LeaseChange;
use outrigger_cluster_harness::pods::ProcessSpan;

/// The marker from which on our manager has new work: before it, none of its AWS writes is called for.
pub const NEW_WORK_BEGINS: &str = "new work begins";

/// Everything that was recorded in one run.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Every AWS call that passed the proxy.
    pub aws_calls: Vec<AwsCall>,
    /// Every event of the tenant API server's audit log.
    pub audit_events: Vec<AuditEvent>,
    pub lease_changes: Vec<LeaseChange>,
    pub processes: Vec<ProcessSpan>,
    /// Process name by lease holder identity, where the harness knows it; for others the times decide.
    pub holders: BTreeMap<String, String>,
    pub markers: Vec<Marker>,
    pub snapshots: Vec<Snapshot>,
    /// Times in which the harness stopped a process.
    pub pauses: Vec<Pause>,
    /// Every version of the migration object's status, in order.
    pub statements: Vec<Statement>,
    /// Nodes that joined while M changed hands.
    pub joins: Vec<Join>,
    /// The end of the run; what comes later (the tear-down) is left out.
    pub until: Timestamp,
}

impl Inputs {
    pub(super) fn process(&self, name: &str) -> Option<&ProcessSpan> {
        self.processes.iter().find(|process| process.process == name)
    }

    /// The processes with these names, in order.
    pub(super) fn processes_named(&self, names: &BTreeSet<String>) -> impl Iterator<Item = &ProcessSpan> {
        self.processes.iter().filter(|process| names.contains(&process.process))
    }

    /// The pauses of the processes with these names.
    pub(super) fn pauses_of(&self, names: &BTreeSet<String>) -> impl Iterator<Item = &Pause> {
        self.pauses.iter().filter(|pause| names.contains(&pause.process))
    }

    /// The calls of the run that ask for a change, whether AWS granted it or not.
    pub(super) fn writes(&self) -> impl Iterator<Item = &AwsCall> {
        let calls = self.aws_calls.iter();
        calls.filter(|call| call.is_write && !call.is_dry_run() && call.at <= self.until)
    }

    /// The status in force at a moment.
    pub(super) fn statement_at(&self, at: Timestamp) -> Option<&Statement> {
        self.statements.iter().rev().find(|said| said.at <= at)
    }

    /// The load balancers of the last snapshot until `at`.
    pub(super) fn balancers_at(&self, at: Timestamp) -> Option<&BTreeMap<String, LoadBalancer>> {
        let before = self.snapshots.iter().filter(|snapshot| snapshot.at <= at);
        Some(&before.max_by_key(|snapshot| snapshot.at)?.load_balancers)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsCall {
    /// When the proxy received it.
    pub at: Timestamp,
    /// The process, known by its access key.
    pub caller: String,
    /// Signing name of the service: `ec2`, `elasticloadbalancing`.
    pub service: String,
    pub action: String,
    /// True for a probe that changes nothing and says so in its user agent.
    pub preflight: bool,
    /// True when the action changes something.
    pub is_write: bool,
    /// The flat parameters of the query protocol: `LoadBalancerName`, `ResourceId.1`.
    pub parameters: BTreeMap<String, String>,
    /// HTTP status of the answer.
    pub status: u16,
    /// When AWS had carried it out: the proxy does so also where the caller has ended meanwhile.
    pub done: Timestamp,
}

impl AwsCall {
    /// True when AWS did what was asked.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// True for a call with `DryRun`: AWS answers whether it would be allowed, and does nothing.
    pub fn is_dry_run(&self) -> bool {
        self.parameters
            .get("DryRun")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// True when any parameter is one of `identifiers`.
    pub fn names_any(&self, identifiers: &BTreeSet<String>) -> bool {
        self.parameters.values().any(|value| identifiers.contains(value))
    }

    /// True when any parameter is the load balancer's name or one of its identifiers.
    pub(super) fn names(&self, name: &str, balancer: &LoadBalancer) -> bool {
        self.parameters.values().any(|value| value == name) || self.names_any(&balancer.identifiers)
    }
}

impl From<&Call> for AwsCall {
    fn from(call: &Call) -> Self {
        let outcome = call.outcome.as_ref();
        // A caller that got no answer does not know, but AWS has done what was forwarded to it.
        let unanswered = if outcome.is_some_and(|outcome| outcome.forwarded) {
            200
        } else {
            0
        };

        Self {
            at: call.at,
            caller: call.caller.clone(),
            service: call.service.scope().to_owned(),
            action: call.action.clone(),
            preflight: call.preflight,
            is_write: call.is_write(),
            parameters: call
                .parameters
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            done: outcome
                .and_then(|outcome| SignedDuration::try_from(outcome.duration).ok())
                .and_then(|duration| call.at.checked_add(duration).ok())
                .unwrap_or(call.at),
            status: outcome.and_then(|outcome| outcome.status).unwrap_or(unanswered),
        }
    }
}

/// The marker from which on the API server of the migration object answers no request of our managers.
pub const MANAGEMENT_SILENT: &str = "management API silent";
/// The marker that ends it.
pub const MANAGEMENT_ANSWERS: &str = "management API answers";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    pub at: Timestamp,
    /// Its name, such as `phase Migrate` or [`NEW_WORK_BEGINS`].
    pub name: String,
}

/// The load balancers and routes that AWS had at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub at: Timestamp,
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Instance by table and range, for each route to an instance.
    pub routes: BTreeMap<(String, String), String>,
}

/// A load balancer as far as it must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its DNS name: a new one means that clients lost it.
    pub dns_name: String,
    /// When AWS created it, as AWS wrote it.
    pub created: String,
    /// Instances (or other targets) behind it.
    pub targets: BTreeSet<String>,
    /// AWS identifiers that stay the same for its whole life: security groups of a classic load balancer, its own ARN
    /// and those of the target groups of a network load balancer.
    pub identifiers: BTreeSet<String>,
}

/// A Node that joined. Its instance must become a target of every load balancer of the snapshot before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    pub at: Timestamp,
    /// The ID of its instance.
    pub target: String,
}

/// A time in which a process was stopped by a signal and not killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Its name, as in [`ProcessSpan::process`].
    pub process: String,
    pub from: Timestamp,
    /// When it was continued, if it was.
    pub until: Option<Timestamp>,
}

/// The migration object's status, from one moment on, and the spec beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statement {
    pub at: Timestamp,
    /// `spec.phase`.
    pub phase: Option<String>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The side that owns the Service controller, if the status names one.
    pub owner: Option<Side>,
    /// The holder of the lease that guards it, if the status names one.
    pub holder: Option<String>,
    pub conditions: Vec<Condition>,
    /// `status.observedBy`, if the status has it.
    pub observed_by: Option<ObservedBy>,
}

/// The manager that wrote the status, and when it did so last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedBy {
    /// Its identity, as the holder of C.
    pub identity: String,
    pub time: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `ControlPlaneMigrated`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::call;

    #[test]
    fn a_call_succeeded_when_its_status_is_of_the_class_200() {
        for (status, expected) in [
            (0, false),
            (199, false),
            (200, true),
            (299, true),
            (300, false),
            (400, false),
        ] {
            let answered = AwsCall {
                status,
                ..call("ec2", "CreateRoute", &[])
            };
            assert_eq!(answered.succeeded(), expected, "{status}");
        }
    }

    #[test]
    fn a_call_is_a_dry_run_when_its_parameter_is_true_in_any_case() {
        for (value, expected) in [("true", true), ("True", true), ("false", false), ("", false)] {
            let asked = call("ec2", "CreateRoute", &[("DryRun", value)]);
            assert_eq!(asked.is_dry_run(), expected, "{value:?}");
        }
        assert!(!call("ec2", "CreateRoute", &[]).is_dry_run());
    }
}
