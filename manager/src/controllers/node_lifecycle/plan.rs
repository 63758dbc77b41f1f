//! Which Nodes go, which get the shutdown taint, and why not the others. Pure: the time is an argument.
//!
//! An error is not absence, absence is not deletion, and deletion has a breaker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_shared::taints;
use tokio::time::Instant;

use crate::instances::Target;
use crate::node_cache::NodeView;

/// A Node younger than this is deleted only when EC2 lists its instance as terminated: EC2 may not list a new
/// instance yet.
pub const YOUNG: Duration = Duration::from_secs(60);
/// Time between the two sightings of absence that a deletion needs.
pub const APART: Duration = Duration::from_secs(10);
/// The same for a Node whose absence cannot be confirmed by ID: its instance ID was never known, or it is on Fargate.
pub const APART_WITHOUT_ID: Duration = Duration::from_secs(60);
/// How many passes in which EC2 said that the instance is gone a deletion needs. Nothing that EC2 said in between may
/// contradict.
pub const SIGHTINGS: u32 = 2;
/// The breaker counts the Nodes that go within this time.
pub const WINDOW: Duration = Duration::from_secs(300);
/// How long an open breaker holds everything back; after that it lets its own limit through in each window, so that
/// a cluster that really shrank is cleaned up slowly instead of never.
pub const HOLD: Duration = Duration::from_secs(900);
/// So many may always go in a window.
const ALWAYS: usize = 3;

/// What is known about the instance of a Node that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// There and not stopped.
    Exists(InstanceId),
    /// Stopped.
    Stopped(InstanceId),
    /// A Fargate Node whose network interface is there.
    OnFargate,
    /// EC2 lists it as terminated: gone for good.
    Terminated,
    /// EC2 said, asked by ID, that it does not exist.
    ConfirmedAbsent,
    /// EC2 lists none: no instance, or no network interface of a Fargate Node.
    Absent,
    /// Nothing is known: the question failed, or has no clear answer.
    Unknown(String),
    /// Not an EC2 instance.
    Foreign,
}

/// A Node with its finding; `None` for a Node that is Ready, about which nobody was asked.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Node.
    pub node: Arc<NodeView>,
    /// What is known.
    pub finding: Option<Finding>,
    /// How long the Node has existed.
    pub age: Duration,
}

/// One thing to do.
#[derive(Debug, Clone)]
pub enum Action {
    /// Delete the Node; why.
    Delete(Arc<NodeView>, &'static str),
    /// Add the shutdown taint.
    AddShutdownTaint(Arc<NodeView>),
    /// Take the shutdown taint off.
    RemoveShutdownTaint(Arc<NodeView>),
}

/// What a pass does.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order.
    pub actions: Vec<Action>,
    /// How many Nodes look gone while the breaker holds their deletion back.
    pub held: usize,
    /// Whether the breaker opened in this pass.
    pub opened: bool,
}

/// What is remembered from pass to pass.
#[derive(Debug, Default)]
pub struct Memory {
    gone: HashMap<String, Gone>,
    ids: HashMap<String, InstanceId>,
    deleted: Vec<Instant>,
    open_since: Option<Instant>,
}

/// How often, and since when, EC2 has said that an instance is gone.
#[derive(Debug, Clone, Copy)]
struct Gone {
    since: Instant,
    sightings: u32,
}

impl Memory {
    /// The Nodes among these whose absence is old enough to be confirmed by ID, with those IDs.
    #[must_use]
    pub fn to_confirm(
        &self,
        seen: &[Seen],
        by_target: impl Fn(&NodeView) -> Option<InstanceId>,
        now: Instant,
    ) -> Vec<(usize, InstanceId)> {
        let old = |node: &NodeView| {
            self.gone
                .get(node.uid())
                .is_some_and(|gone| now.duration_since(gone.since) >= APART)
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

    /// Counts a deletion that was done, for the breaker.
    pub fn deleted(&mut self, now: Instant) {
        self.deleted.push(now);
    }

    /// Whether the breaker is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open_since.is_some()
    }
}

/// Plans a pass over all Nodes.
pub fn plan(seen: &[Seen], memory: &mut Memory, now: Instant) -> Plan {
    let uids: BTreeSet<&str> = seen.iter().map(|seen| seen.node.uid()).collect();
    memory.gone.retain(|uid, _| uids.contains(uid.as_str()));
    memory.ids.retain(|uid, _| uids.contains(uid.as_str()));
    let mut plan = Plan::default();
    let mut gone: Vec<(Arc<NodeView>, &'static str)> = Vec::new();
    for Seen { node, finding, age } in seen {
        remember(node, finding.as_ref(), memory, now);
        let tainted = node.has_taint(taints::SHUTDOWN);
        match finding {
            None if tainted => plan.actions.push(Action::RemoveShutdownTaint(Arc::clone(node))),
            Some(Finding::Stopped(_)) if !tainted => plan.actions.push(Action::AddShutdownTaint(Arc::clone(node))),
            Some(finding) => {
                gone.extend(reason_to_delete(node, finding, *age, memory, now).map(|reason| (Arc::clone(node), reason)))
            }
            None => {}
        }
    }
    gone.sort_by(|a, b| a.0.name().cmp(b.0.name()));
    let allowed = breaker(gone.len(), seen.len(), memory, now, &mut plan);
    plan.actions.extend(
        gone.into_iter()
            .take(allowed)
            .map(|(node, reason)| Action::Delete(node, reason)),
    );
    plan
}

fn remember(node: &NodeView, finding: Option<&Finding>, memory: &mut Memory, now: Instant) {
    match finding {
        Some(Finding::Exists(id) | Finding::Stopped(id)) => {
            memory.ids.insert(node.uid().to_owned(), id.clone());
            memory.gone.remove(node.uid());
        }
        Some(Finding::Absent | Finding::ConfirmedAbsent | Finding::Terminated) => {
            let first = Gone {
                since: now,
                sightings: 0,
            };
            memory.gone.entry(node.uid().to_owned()).or_insert(first).sightings += 1;
        }
        // An error says nothing, so it neither starts nor ends an absence.
        Some(Finding::Unknown(_) | Finding::Foreign) => {}
        Some(Finding::OnFargate) | None => _ = memory.gone.remove(node.uid()),
    }
}

fn reason_to_delete(
    node: &NodeView,
    finding: &Finding,
    age: Duration,
    memory: &Memory,
    now: Instant,
) -> Option<&'static str> {
    let gone = memory.gone.get(node.uid()).filter(|gone| gone.sightings >= SIGHTINGS)?;
    let absent_for = now.duration_since(gone.since);
    let target = Target::of(node);
    let id_known = target.id().is_some() || memory.ids.contains_key(node.uid());
    match finding {
        Finding::Terminated => Some("its instance is terminated"),
        _ if age < YOUNG => None,
        Finding::ConfirmedAbsent if absent_for >= APART => Some("EC2 says that its instance does not exist"),
        Finding::Absent if !id_known && absent_for >= APART_WITHOUT_ID => Some(match target {
            Target::Fargate(_) => "no attached network interface has its address",
            _ => "no instance of this cluster has its private DNS name or address",
        }),
        _ => None,
    }
}

/// How many of the Nodes that look gone may go. More than 3 and more than a tenth of all within [`WINDOW`]: none,
/// for a fault at AWS, in permissions or in a region setting looks just like that.
fn breaker(gone: usize, present: usize, memory: &mut Memory, now: Instant, plan: &mut Plan) -> usize {
    memory.deleted.retain(|at| now.duration_since(*at) < WINDOW);
    let recent = memory.deleted.len();
    let limit = ALWAYS.max((present + recent) / 10);
    if gone == 0 || recent + gone <= limit {
        memory.open_since = None;
        return gone;
    }
    plan.opened = memory.open_since.is_none();
    let since = *memory.open_since.get_or_insert(now);
    let allowed = if now.duration_since(since) >= HOLD {
        limit.saturating_sub(recent).min(gone)
    } else {
        0
    };
    plan.held = gone - allowed;
    allowed
}
