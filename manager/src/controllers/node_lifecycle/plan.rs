//! Decides which Nodes are deleted and which get the shutdown taint. Pure: the time is an argument.
//!
//! An error is not absence, and one observation of absence deletes nothing. The deletion of Nodes whose instances EC2
//! does not list has a circuit breaker: wrong permissions, a wrong region or a wrong cluster ID look like many absent
//! instances. The breaker does not count terminated instances, since none of these faults makes EC2 report the state
//! `terminated`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_shared::taints;
use tokio::time::Instant;

use crate::args::DeletionBreaker;
use crate::confirmation::FirstSeen;
use crate::instances::Target;
use crate::node_cache::NodeView;

/// A Node younger than this is deleted only when EC2 lists its instance as terminated: EC2 may not list a new
/// instance yet.
pub const MIN_AGE: Duration = Duration::from_secs(60);
/// Time between the two observations of absence that a deletion needs.
pub const MIN_ABSENCE: Duration = Duration::from_secs(10);
/// The same for a Node whose absence cannot be confirmed by ID: its instance ID was never known, or it is on Fargate.
pub const MIN_ABSENCE_WITHOUT_ID: Duration = Duration::from_secs(60);
/// How many consecutive observations of a terminated or absent instance a deletion needs.
pub const OBSERVATIONS: u32 = 2;

/// The state of the instance of a Node that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Exists(InstanceId),
    Stopped(InstanceId),
    /// A Fargate Node whose network interface exists.
    OnFargate,
    Terminated,
    /// EC2 returned `InvalidInstanceID.NotFound` for its ID.
    ConfirmedAbsent,
    /// EC2 lists none: no instance, or no network interface of a Fargate Node.
    Absent,
    /// Unknown: the call failed, or the answer is ambiguous.
    Unknown(String),
    Foreign,
}

/// A Node with its finding; `None` for a Node that is Ready.
#[derive(Debug, Clone)]
pub struct ObservedNode {
    pub node: Arc<NodeView>,
    /// `None` if nothing is known.
    pub finding: Option<Finding>,
    pub age: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Terminated,
    /// EC2 says that an instance of its ID does not exist.
    ConfirmedAbsent,
    /// A Node without a known instance ID; no instance has its name or address.
    NoInstance,
    /// A Fargate Node; no attached network interface has its address.
    NoInterface,
}

impl Reason {
    /// Whether the breaker counts the deletion.
    pub fn is_absence(self) -> bool {
        self != Self::Terminated
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "its instance is terminated",
            Self::ConfirmedAbsent => "EC2 reports that its instance does not exist",
            Self::NoInstance => "no instance of this cluster has its private DNS name or address",
            Self::NoInterface => "no attached network interface has its address",
        }
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Delete(Arc<NodeView>, Reason),
    AddShutdownTaint(Arc<NodeView>),
    RemoveShutdownTaint(Arc<NodeView>),
}

#[derive(Debug, Default)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub opened: Option<Opened>,
}

/// The numbers at the time when the breaker opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    pub deferred: usize,
    pub limit: usize,
}

/// Observations of former passes.
#[derive(Debug, Default)]
pub struct History {
    /// Terminated or absent instances, by the UID of the Node.
    gone: FirstSeen<String>,
    ids: HashMap<String, InstanceId>,
    /// Deletions of Nodes whose instances were absent.
    deleted: Vec<Instant>,
    open_since: Option<Instant>,
}

impl History {
    /// The Nodes among these whose absence is old enough to be confirmed by ID, with those IDs.
    pub fn to_confirm(
        &self,
        seen: &[ObservedNode],
        by_target: impl Fn(&NodeView) -> Option<InstanceId>,
        now: Instant,
    ) -> Vec<(usize, InstanceId)> {
        let old = |node: &NodeView| {
            let gone = self.gone.get(node.uid());
            gone.is_some_and(|gone| gone.age(now) >= MIN_ABSENCE)
        };
        let absent = seen
            .iter()
            .enumerate()
            .filter(|(_, seen)| seen.finding == Some(Finding::Absent) && old(&seen.node));
        absent
            .filter_map(|(place, seen)| {
                let id = by_target(&seen.node).or_else(|| self.ids.get(seen.node.uid()).cloned())?;
                Some((place, id))
            })
            .collect()
    }

    pub fn deleted(&mut self, reason: Reason, now: Instant) {
        if reason.is_absence() {
            self.deleted.push(now);
        }
    }

    pub fn is_open(&self) -> bool {
        self.open_since.is_some()
    }
}

pub fn plan(seen: &[ObservedNode], history: &mut History, breaker: &DeletionBreaker, now: Instant) -> Plan {
    let uids: BTreeSet<&str> = seen.iter().map(|seen| seen.node.uid()).collect();
    history.gone.retain(|uid, _| uids.contains(uid.as_str()));
    history.ids.retain(|uid, _| uids.contains(uid.as_str()));

    let mut plan = Plan::default();
    let mut deletions: Vec<(Arc<NodeView>, Reason)> = Vec::new();
    for ObservedNode { node, finding, age } in seen {
        record(node, finding.as_ref(), history, now);

        let tainted = node.has_taint(taints::SHUTDOWN);
        match finding {
            None if tainted => plan.actions.push(Action::RemoveShutdownTaint(Arc::clone(node))),
            Some(Finding::Stopped(_)) if !tainted => plan.actions.push(Action::AddShutdownTaint(Arc::clone(node))),
            Some(finding) => deletions
                .extend(reason_to_delete(node, finding, *age, history, now).map(|reason| (Arc::clone(node), reason))),
            None => {}
        }
    }

    deletions.sort_by(|a, b| a.0.name().cmp(b.0.name()));

    let (due, terminated): (Vec<_>, Vec<_>) = deletions.into_iter().partition(|(_, reason)| reason.is_absence());
    let absent = seen.iter().filter(|seen| is_absent(seen, history)).count();
    let (allowed, opened) = allowed((due.len(), absent), seen.len(), history, breaker, now);
    plan.opened = opened;

    let deletions = terminated.into_iter().chain(due.into_iter().take(allowed));
    plan.actions
        .extend(deletions.map(|(node, reason)| Action::Delete(node, reason)));

    plan
}

fn record(node: &NodeView, finding: Option<&Finding>, history: &mut History, now: Instant) {
    match finding {
        Some(Finding::Exists(id) | Finding::Stopped(id)) => {
            history.ids.insert(node.uid().to_owned(), id.clone());
            history.gone.remove(node.uid());
        }
        Some(Finding::Absent | Finding::ConfirmedAbsent | Finding::Terminated) => {
            history.gone.note(node.uid().to_owned(), now);
        }
        // An error neither starts nor ends an absence.
        Some(Finding::Unknown(_) | Finding::Foreign) => {}
        Some(Finding::OnFargate) | None => history.gone.remove(node.uid()),
    }
}

fn reason_to_delete(
    node: &NodeView,
    finding: &Finding,
    age: Duration,
    history: &History,
    now: Instant,
) -> Option<Reason> {
    let gone = history.gone.get(node.uid()).filter(|gone| gone.times >= OBSERVATIONS)?;
    let absent_for = gone.age(now);
    let target = Target::of(node);
    let id_known = target.id().is_some() || history.ids.contains_key(node.uid());

    match finding {
        Finding::Terminated => Some(Reason::Terminated),
        _ if age < MIN_AGE => None,
        Finding::ConfirmedAbsent if absent_for >= MIN_ABSENCE => Some(Reason::ConfirmedAbsent),
        Finding::Absent if !id_known && absent_for >= MIN_ABSENCE_WITHOUT_ID => Some(match target {
            Target::Fargate(_) => Reason::NoInterface,
            _ => Reason::NoInstance,
        }),
        _ => None,
    }
}

/// Whether the breaker counts the Node. It also counts those that are not due yet: Nodes that a fault hides all at once
/// become due one after another.
fn is_absent(seen: &ObservedNode, history: &History) -> bool {
    let gone = history.gone.get(seen.node.uid());
    matches!(seen.finding, Some(Finding::Absent | Finding::ConfirmedAbsent))
        && gone.is_some_and(|gone| gone.times >= OBSERVATIONS)
}

/// How many of the Nodes that are `due` may be deleted in this pass, and whether the breaker opened. After the hold an
/// open breaker allows its limit in each window: a cluster that really shrank is cleaned up slowly instead of never.
fn allowed(
    (due, absent): (usize, usize),
    present: usize,
    history: &mut History,
    breaker: &DeletionBreaker,
    now: Instant,
) -> (usize, Option<Opened>) {
    history.deleted.retain(|at| now.duration_since(*at) < breaker.window);

    let recent = history.deleted.len();
    let limit = breaker.limit(present + recent);
    if due == 0 || recent + absent <= limit {
        history.open_since = None;
        return (due, None);
    }

    let is_new = history.open_since.is_none();
    let since = *history.open_since.get_or_insert(now);
    let allowed = if now.duration_since(since) >= breaker.hold {
        limit.saturating_sub(recent).min(due)
    } else {
        0
    };
    let opened = Opened {
        deferred: absent - allowed,
        limit,
    };

    (allowed, is_new.then_some(opened))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OLD: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);
    const BREAKER: DeletionBreaker = DeletionBreaker {
        minimum: 2,
        percent: 10,
        window: Duration::from_secs(600),
        hold: Duration::from_secs(900),
    };

    fn observed(node: Value, finding: Finding) -> ObservedNode {
        ObservedNode {
            node: Arc::new(serde_json::from_value(node).unwrap()),
            finding: Some(finding),
            age: OLD,
        }
    }

    /// A Node whose name is not an instance ID.
    fn named(name: &str, finding: Finding) -> ObservedNode {
        observed(json!({"metadata": {"name": name, "uid": name}}), finding)
    }

    fn with_provider_id(provider_id: &str, finding: Finding) -> ObservedNode {
        let node = json!({"metadata": {"name": "a", "uid": "a"}, "spec": {"providerID": provider_id}});
        observed(node, finding)
    }

    /// The reasons for the deletions that a pass plans.
    fn deletions(plan: &Plan) -> Vec<Reason> {
        let reason = |action: &Action| match action {
            Action::Delete(_, reason) => Some(*reason),
            _ => None,
        };
        plan.actions.iter().filter_map(reason).collect()
    }

    /// The deletions of a second pass, which observes the same after `between`.
    fn second(node: &ObservedNode, between: Duration) -> Vec<Reason> {
        let (mut history, start) = (History::default(), Instant::now());
        let observed = [node.clone()];
        let first = plan(&observed, &mut history, &BREAKER, start);
        assert!(
            first.actions.is_empty(),
            "a deletion at the first observation: {first:?}"
        );
        deletions(&plan(&observed, &mut history, &BREAKER, start + between))
    }

    #[test]
    fn each_deletion_has_its_reason_and_waits_its_time() {
        let ec2 = "aws:///us-east-1a/i-1";
        let fargate = "aws:///us-east-1a/x/fargate-ip-10-0-0-1.internal";
        for (node, wait, reason) in [
            (
                with_provider_id(ec2, Finding::Terminated),
                Duration::ZERO,
                Reason::Terminated,
            ),
            (
                with_provider_id(ec2, Finding::ConfirmedAbsent),
                MIN_ABSENCE,
                Reason::ConfirmedAbsent,
            ),
            (named("a", Finding::Absent), MIN_ABSENCE_WITHOUT_ID, Reason::NoInstance),
            (
                with_provider_id(fargate, Finding::Absent),
                MIN_ABSENCE_WITHOUT_ID,
                Reason::NoInterface,
            ),
        ] {
            if let Some(before) = wait.checked_sub(SECOND) {
                assert_eq!(second(&node, before), [], "{reason:?} is too early");
            }
            assert_eq!(second(&node, wait), [reason]);
        }
        assert_eq!(
            second(&with_provider_id(ec2, Finding::Absent), OLD),
            [],
            "not confirmed by its ID"
        );
    }

    #[test]
    fn the_reasons_name_what_ec2_reports() {
        for (reason, word) in [
            (Reason::Terminated, "terminated"),
            (Reason::ConfirmedAbsent, "does not exist"),
            (Reason::NoInstance, "no instance"),
            (Reason::NoInterface, "no attached network interface"),
        ] {
            assert!(reason.as_str().contains(word), "{}", reason.as_str());
        }
    }

    #[test]
    fn a_node_is_old_enough_from_its_minimum_age_on() {
        let aged = |age| ObservedNode {
            age,
            ..named("a", Finding::Absent)
        };
        assert_eq!(second(&aged(MIN_AGE - SECOND), OLD), []);
        assert_eq!(second(&aged(MIN_AGE), OLD), [Reason::NoInstance]);
    }

    #[test]
    fn only_an_absence_that_is_old_enough_is_confirmed_by_id() {
        let absent = with_provider_id("aws:///us-east-1a/i-1", Finding::Absent);
        let unknown = named("b", Finding::Unknown("throttled".into()));
        let (mut history, start) = (History::default(), Instant::now());
        plan(
            &[absent.clone(), named("b", Finding::Absent)],
            &mut history,
            &BREAKER,
            start,
        );

        let observed = [absent, unknown];
        let by_target = |node: &NodeView| Target::of(node).id().cloned();
        let at = |wait| history.to_confirm(&observed, by_target, start + wait);
        assert_eq!(at(MIN_ABSENCE - SECOND), []);
        assert_eq!(at(MIN_ABSENCE), [(0, InstanceId::new("i-1"))]);
        let all = |_: &NodeView| Some(InstanceId::new("i-2"));
        let confirmed = history.to_confirm(&observed, all, start + MIN_ABSENCE);
        assert_eq!(
            confirmed,
            [(0, InstanceId::new("i-2"))],
            "an unknown instance is not absent"
        );
    }

    fn cluster(absent: usize, terminated: usize) -> Vec<ObservedNode> {
        let findings = std::iter::repeat_n(Finding::ConfirmedAbsent, absent);
        let findings = findings.chain(std::iter::repeat_n(Finding::Terminated, terminated));
        let node = |(n, finding)| named(&format!("n{n}"), finding);
        findings.enumerate().map(node).collect()
    }

    #[test]
    fn terminated_instances_do_not_open_the_breaker() {
        let (mut history, start) = (History::default(), Instant::now());
        let observed = cluster(2, 8);
        plan(&observed, &mut history, &BREAKER, start);
        let second = plan(&observed, &mut history, &BREAKER, start + MIN_ABSENCE);
        assert_eq!((deletions(&second).len(), second.opened), (10, None));
        assert!(!history.is_open());
    }

    #[test]
    fn a_window_allows_its_limit_and_ends_at_its_length() {
        let (mut history, start) = (History::default(), Instant::now());
        let observed = cluster(2, 0);
        plan(&observed, &mut history, &BREAKER, start);
        for _ in 0..2 {
            history.deleted(Reason::ConfirmedAbsent, start);
        }

        let opens = plan(&observed, &mut history, &BREAKER, start + BREAKER.window - SECOND);
        assert_eq!(opens.opened, Some(Opened { deferred: 2, limit: 2 }));
        assert!(deletions(&opens).is_empty() && history.is_open());
        let closes = plan(&observed, &mut history, &BREAKER, start + BREAKER.window);
        assert_eq!((deletions(&closes).len(), closes.opened), (2, None));
    }

    #[test]
    fn an_open_breaker_without_a_hold_defers_what_is_above_its_limit() {
        let (mut history, start) = (History::default(), Instant::now());
        let breaker = DeletionBreaker {
            hold: Duration::ZERO,
            ..BREAKER
        };
        let observed = cluster(7, 0);
        plan(&observed, &mut history, &breaker, start);
        let second = plan(&observed, &mut history, &breaker, start + MIN_ABSENCE);
        assert_eq!(deletions(&second).len(), 2);
        assert_eq!(second.opened, Some(Opened { deferred: 5, limit: 2 }));
    }
}
