//! Every write of the controller. Each asks the permit first.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use outrigger_aws::limit::Priority;
use outrigger_aws::{Error as AwsError, Instance, InstanceState, Kind};
use outrigger_leader::NotLeader;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::condition;
use super::confirmation::Deletion;
use super::denials::{Denials, REPLACE};
use super::deps::Deps;
use super::failures::{self, Failures};
use super::plan::{Member, Plan, Step, Work};
use crate::aws_write::write;
use crate::event_dedup::EventDedup;
use crate::events::{EventType, about_cluster, about_node};
use crate::instances::Answer;
use crate::node_cache::NodeView;
use crate::node_write::WriteError;

/// Writes under way at the same time. AWS lets an account change a few routes a second, so more would only wait.
const AT_ONCE: usize = 16;
/// How old the answer about an instance may be that gets a route.
const FRESH: Duration = Duration::from_secs(30);

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome {
    /// Something was written.
    pub changed: bool,
    /// Something could not be done.
    pub failed: bool,
}

/// What writes of later passes depend on.
#[derive(Debug, Default)]
pub(super) struct Memory {
    events: Mutex<EventDedup>,
    denials: Mutex<Denials>,
}

/// What came of the work for a Node.
enum Done {
    Routed,
    Unrouted(String),
    /// The Node has no range: there is nothing to make.
    Bare,
    /// Nothing is known, or the rest waits for the next pass.
    Later,
}

/// One pass's writes.
struct Writes<'a> {
    deps: &'a Deps,
    stop: &'a CancellationToken,
    memory: &'a Memory,
    failures: Mutex<Failures>,
    changed: AtomicBool,
    /// AWS asked to slow down: the rest waits for the next pass.
    throttled: AtomicBool,
    /// Tables that take no further route, with what to say to the Nodes that are left.
    full: Mutex<HashMap<String, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out a plan: deletions first, for they make room. Returns with no write under way.
pub(super) async fn apply(
    deps: &Deps,
    plan: Plan,
    members: &[Member],
    memory: &Memory,
    stop: &CancellationToken,
) -> Result<Outcome, NotLeader> {
    let writes = Writes {
        deps,
        stop,
        memory,
        failures: Mutex::default(),
        changed: AtomicBool::new(false),
        throttled: AtomicBool::new(false),
        full: Mutex::default(),
    };
    lock(&memory.denials).begin_pass(Instant::now());
    let deletions = stream::iter(plan.deletions).map(Ok);
    deletions
        .try_for_each_concurrent(AT_ONCE, |deletion| writes.delete(deletion))
        .await?;
    let instances = writes.instances(&plan.works, members).await;
    let works = stream::iter(&plan.works).map(Ok);
    works
        .try_for_each_concurrent(AT_ONCE, |work| writes.node(work, members, &instances))
        .await?;
    let present: HashSet<&str> = members.iter().map(|member| member.node.uid()).collect();
    lock(&memory.events).retain(&present);
    Ok(Outcome {
        changed: writes.changed.load(Ordering::Relaxed),
        failed: lock(&writes.failures).log(),
    })
}

/// Remembers a denial, and reports it by one Event for each action.
pub(super) fn report_denied(deps: &Deps, memory: &Memory, resource: &str, error: &AwsError) {
    let action = error.operation();
    let message = lock(&memory.denials).add(action, resource, error, Instant::now());
    if let Some(message) = message {
        tracing::warn!(action, resource, "{message}");
        let (events, permit) = (&deps.events, &deps.permit);
        events.record(
            permit,
            &about_cluster(),
            EventType::Warning,
            "RouteActionDenied",
            &message,
        );
    }
}

impl Writes<'_> {
    fn ends(&self) -> bool {
        self.stop.is_cancelled() || self.throttled.load(Ordering::Relaxed)
    }

    /// One write to AWS, noted. An action that is denied for the resource is answered without a call.
    async fn send(
        &self,
        action: &'static str,
        resource: &str,
        about: &str,
        call: impl Future<Output = Result<(), AwsError>>,
    ) -> Result<Result<(), AwsError>, NotLeader> {
        if let Some(error) = lock(&self.memory.denials).get(action, resource) {
            return Ok(Err(error));
        }
        tracing::info!(action, resource, about, "changing routes");
        let answer = Priority::Initialize.run(write(&self.deps.permit, action, call)).await?;
        match &answer {
            Ok(()) => self.changed.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == Kind::Throttled => self.throttled.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == Kind::AccessDenied => report_denied(self.deps, self.memory, resource, error),
            Err(_) => {}
        }
        Ok(answer)
    }

    async fn delete(&self, deletion: Deletion) -> Result<(), NotLeader> {
        if self.ends() {
            return Ok(());
        }
        let Deletion { table, cidr, why } = deletion;
        let cidr = cidr.to_string();
        let call = self.deps.ec2.delete_route(&table, &cidr);
        match self
            .send("DeleteRoute", &table, &format!("{cidr}: {why}"), call)
            .await?
        {
            Ok(()) => {}
            // Someone else was first.
            Err(error) if error.code() == Some("InvalidRoute.NotFound") => {}
            Err(error) => self.failed(&error, &format!("{cidr} of {table}")),
        }
        Ok(())
    }

    fn failed(&self, error: &AwsError, example: &str) {
        lock(&self.failures).add(&failures::cause(error), &format!("{example}: {error}"));
    }

    /// One question about the instances of all Nodes that get a route.
    async fn instances(&self, works: &[Work], members: &[Member]) -> HashMap<String, Answer> {
        let nodes: Vec<_> = works
            .iter()
            .filter(|work| !work.steps.is_empty())
            .filter_map(|work| Some(Arc::clone(&members.get(work.member)?.node)))
            .collect();
        if nodes.is_empty() || self.ends() {
            return HashMap::new();
        }
        let answers = self.deps.instances.describe(nodes, Priority::Initialize, FRESH).await;
        answers
            .into_iter()
            .map(|(node, answer)| (node.uid().to_owned(), answer))
            .collect()
    }

    async fn node(
        &self,
        work: &Work,
        members: &[Member],
        instances: &HashMap<String, Answer>,
    ) -> Result<(), NotLeader> {
        let Some(Member { node, .. }) = members.get(work.member) else {
            return Ok(());
        };
        if self.stop.is_cancelled() {
            return Ok(());
        }
        match self.carry_out(work, node, instances).await? {
            Done::Later => Ok(()),
            Done::Bare => self.condition(node, false).await,
            Done::Routed => {
                lock(&self.memory.events).forget(node.uid());
                self.condition(node, true).await
            }
            Done::Unrouted(why) => {
                self.tell(node, &why);
                self.condition(node, false).await
            }
        }
    }

    async fn carry_out(
        &self,
        work: &Work,
        node: &NodeView,
        instances: &HashMap<String, Answer>,
    ) -> Result<Done, NotLeader> {
        if work.bare {
            return Ok(Done::Bare);
        }
        let made = match instances.get(node.uid()) {
            _ if work.steps.is_empty() => Done::Routed,
            Some(Answer::Found(instance)) => self.routes(&work.steps, instance).await?,
            Some(Answer::Absent) => Done::Unrouted("EC2 does not list the Node's instance".to_owned()),
            Some(Answer::Failed(error)) => {
                self.failed(error, node.name());
                Done::Later
            }
            _ => Done::Later,
        };
        Ok(match (made, &work.waits) {
            (Done::Routed, _) if !work.obstacles.is_empty() => Done::Unrouted(work.obstacles.join("; ")),
            (Done::Routed, Some(why)) => {
                tracing::debug!(node = node.name(), why, "the Node's routes wait");
                Done::Later
            }
            (made, _) => made,
        })
    }

    /// Tells that a Node has no route: in the log of the pass, and by an Event if it is news.
    fn tell(&self, node: &NodeView, why: &str) {
        lock(&self.failures).add("a Node has no route", &format!("{}: {why}", node.name()));
        let message = format!("The Node's Pods cannot be reached by a route: {why}");
        if lock(&self.memory.events).is_new(node.uid(), &message, Instant::now()) {
            let (about, permit) = (about_node(node), &self.deps.permit);
            let events = &self.deps.events;
            events.record(permit, &about, EventType::Warning, "FailedToCreateRoute", &message);
        }
    }

    async fn condition(&self, node: &NodeView, routed: bool) -> Result<(), NotLeader> {
        if self.stop.is_cancelled() {
            return Ok(());
        }
        match condition::set(self.deps, node, routed).await {
            Ok(written) => _ = self.changed.fetch_or(written, Ordering::Relaxed),
            Err(WriteError::NotLeader(lost)) => return Err(lost),
            Err(error) => {
                let example = format!("{}: {}", node.name(), failures::with_causes(&error));
                lock(&self.failures).add("the condition NetworkUnavailable could not be written", &example);
            }
        }
        Ok(())
    }

    /// Makes the routes of one Node.
    async fn routes(&self, steps: &[Step], instance: &Instance) -> Result<Done, NotLeader> {
        if matches!(
            instance.state,
            Some(InstanceState::Terminated | InstanceState::ShuttingDown)
        ) {
            return Ok(Done::Unrouted(format!("its instance {} is terminated", instance.id)));
        }
        if !self.deps.instances.in_cluster(instance) {
            return Ok(Done::Unrouted(failures::not_in_cluster(
                &instance.id,
                &self.deps.cluster_id,
            )));
        }
        let mut missing: Vec<String> = Vec::new();
        let open = |step: &&Step| self.unavailable(step).map(|why| missing.push(why)).is_none();
        let steps: Vec<&Step> = steps.iter().filter(open).collect();
        if self.ends() {
            return Ok(Done::Later);
        }
        if !steps.is_empty() && instance.source_dest_check != Some(false) {
            let (id, call) = (&instance.id, self.deps.ec2.disable_source_dest_check(&instance.id));
            if let Err(error) = self.send("ModifyInstanceAttribute", "", id.as_str(), call).await? {
                return Ok(self.refused(&error, instance, ""));
            }
        }
        for step in steps {
            if self.ends() {
                return Ok(Done::Later);
            }
            if let Err(error) = self.route(step, instance).await? {
                match self.refused(&error, instance, &step.table) {
                    Done::Unrouted(why) => missing.push(why),
                    other => return Ok(other),
                }
            }
        }
        missing.dedup();
        Ok(match missing.as_slice() {
            [] => Done::Routed,
            missing => Done::Unrouted(missing.join("; ")),
        })
    }

    async fn route(&self, step: &Step, instance: &Instance) -> Result<Result<(), AwsError>, NotLeader> {
        let (table, cidr, id) = (step.table.as_str(), step.cidr.to_string(), &instance.id);
        let (ec2, about) = (&self.deps.ec2, format!("{cidr} to {id}"));
        if step.replaces {
            let call = ec2.replace_route(table, &cidr, id);
            match self.send(REPLACE, table, &about, call).await? {
                Err(error) if error.kind() == Kind::AccessDenied => {}
                answer => return Ok(answer),
            }
            if let Err(error) = self.make_way(table, &cidr).await? {
                return Ok(Err(error));
            }
        }
        let call = ec2.create_route(table, &cidr, id);
        self.send("CreateRoute", table, &about, call).await
    }

    /// Deletes the route that another is created for, as v1.37.0 does, unless creating is known to be denied.
    async fn make_way(&self, table: &str, cidr: &str) -> Result<Result<(), AwsError>, NotLeader> {
        if let Some(error) = lock(&self.memory.denials).get("CreateRoute", table) {
            return Ok(Err(error));
        }
        let (call, about) = (
            self.deps.ec2.delete_route(table, cidr),
            format!("{cidr}: to create it again"),
        );
        Ok(match self.send("DeleteRoute", table, &about, call).await? {
            Err(error) if error.code() == Some("InvalidRoute.NotFound") => Ok(()),
            answer => answer,
        })
    }

    /// Why a step need not be tried: its table is full, or creating routes there is denied.
    fn unavailable(&self, step: &Step) -> Option<String> {
        if let Some(why) = lock(&self.full).get(&step.table) {
            return Some(why.clone());
        }
        let denials = lock(&self.memory.denials);
        if step.replaces && denials.get(REPLACE, &step.table).is_none() {
            return None;
        }
        let denied = denials.get("CreateRoute", &step.table)?;
        Some(failures::explain(&denied, &step.table))
    }

    /// What a refused write means for its Node, and for the ones that are left.
    fn refused(&self, error: &AwsError, instance: &Instance, table: &str) -> Done {
        let why = failures::explain(error, table);
        match error.kind() {
            // The tables were read a moment ago, and EC2 shows a new state late; the next pass looks again.
            Kind::AlreadyExists => return Done::Later,
            Kind::NotFound if error.code() == Some("InvalidRoute.NotFound") => return Done::Later,
            Kind::Throttled | Kind::Transport => {
                self.failed(error, instance.id.as_str());
                return Done::Later;
            }
            _ if failures::is_full(error) => _ = lock(&self.full).insert(table.to_owned(), why.clone()),
            _ => {}
        }
        Done::Unrouted(why)
    }
}
