//! All writes of the controller. Each checks the permit first.

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

use super::Deps;
use super::condition;
use super::confirmation::Deletion;
use super::failures::{self, Denials, Failures, REPLACE};
use super::plan::{Member, NodePlan, Plan, Step};
use crate::aws_write::write;
use crate::events::{EventDedup, about_cluster, about_node};
use crate::instances::Answer;
use crate::logs::with_causes;
use crate::node_cache::NodeView;
use crate::node_write::WriteError;

/// Concurrent writes. EC2 allows an account a few changes of routes per second, so more would only wait.
const MAX_CONCURRENT_WRITES: usize = 16;
/// Maximum age of the description of an instance that gets a route.
const MAX_AGE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome {
    pub changed: bool,
    pub failed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    events: Mutex<EventDedup>,
    denials: Mutex<Denials>,
}

enum Done {
    Routed,
    Unrouted(String),
    NoRange,
    /// Unknown, or the rest waits for the next pass.
    Later,
}

struct Writes<'a> {
    deps: &'a Deps,
    stop: &'a CancellationToken,
    reports: &'a Reports,
    failures: Mutex<Failures>,
    changed: AtomicBool,
    /// AWS throttles: the rest waits for the next pass.
    throttled: AtomicBool,
    /// Tables that are full, with the message for the remaining Nodes.
    full: Mutex<HashMap<String, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies a plan: deletions first, since they free quota. Returns with no write in flight.
pub(super) async fn apply(
    deps: &Deps,
    plan: Plan,
    members: &[Member],
    reports: &Reports,
    stop: &CancellationToken,
) -> Result<Outcome, NotLeader> {
    let writes = Writes {
        deps,
        stop,
        reports,
        failures: Mutex::default(),
        changed: AtomicBool::new(false),
        throttled: AtomicBool::new(false),
        full: Mutex::default(),
    };

    lock(&reports.denials).begin_pass(Instant::now());

    let deletions = stream::iter(plan.deletions).map(Ok);
    deletions
        .try_for_each_concurrent(MAX_CONCURRENT_WRITES, |deletion| writes.delete(deletion))
        .await?;

    let instances = writes.instances(&plan.node_plans, members).await;
    let node_plans = stream::iter(&plan.node_plans).map(Ok);
    node_plans
        .try_for_each_concurrent(MAX_CONCURRENT_WRITES, |work| writes.node(work, members, &instances))
        .await?;

    let present: HashSet<&str> = members.iter().map(|member| member.node.uid()).collect();
    lock(&reports.events).retain(&present);

    Ok(Outcome {
        changed: writes.changed.load(Ordering::Relaxed),
        failed: lock(&writes.failures).log(),
    })
}

/// Records a denial, and emits one Event per action.
pub(super) fn report_denied(deps: &Deps, reports: &Reports, resource: &str, error: &AwsError) {
    let action = error.operation();
    let message = lock(&reports.denials).add(action, resource, error, Instant::now());
    if let Some(message) = message {
        tracing::warn!(action, resource, "{message}");
        deps.events
            .warn(&deps.permit, &about_cluster(), "RouteActionDenied", &message);
    }
}

impl Writes<'_> {
    fn is_ending(&self) -> bool {
        self.stop.is_cancelled() || self.throttled.load(Ordering::Relaxed)
    }

    /// Sends one write to AWS. An action that is denied for the resource fails without a call.
    async fn send(
        &self,
        action: &'static str,
        resource: &str,
        about: &str,
        call: impl Future<Output = Result<(), AwsError>>,
    ) -> Result<Result<(), AwsError>, NotLeader> {
        if let Some(error) = lock(&self.reports.denials).get(action, resource) {
            return Ok(Err(error));
        }

        tracing::info!(action, resource, about, "changing routes");

        let answer = Priority::Initialize.run(write(&self.deps.permit, action, call)).await?;
        match &answer {
            Ok(()) => self.changed.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == Kind::Throttled => self.throttled.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == Kind::AccessDenied => report_denied(self.deps, self.reports, resource, error),
            Err(_) => {}
        }

        Ok(answer)
    }

    async fn delete(&self, deletion: Deletion) -> Result<(), NotLeader> {
        if self.is_ending() {
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
            // It was deleted meanwhile.
            Err(error) if error.code() == Some("InvalidRoute.NotFound") => {}
            Err(error) => self.failed(&error, &format!("{cidr} of {table}")),
        }

        Ok(())
    }

    fn failed(&self, error: &AwsError, example: &str) {
        lock(&self.failures).add(&failures::cause(error), &format!("{example}: {error}"));
    }

    async fn instances(&self, node_plans: &[NodePlan], members: &[Member]) -> HashMap<String, Answer> {
        let nodes: Vec<_> = node_plans
            .iter()
            .filter(|work| !work.steps.is_empty())
            .filter_map(|work| Some(Arc::clone(&members.get(work.member)?.node)))
            .collect();
        if nodes.is_empty() || self.is_ending() {
            return HashMap::new();
        }

        let answers = self.deps.instances.describe(nodes, Priority::Initialize, MAX_AGE).await;
        answers
            .into_iter()
            .map(|(node, answer)| (node.uid().to_owned(), answer))
            .collect()
    }

    async fn node(
        &self,
        work: &NodePlan,
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
            Done::NoRange => self.condition(node, false).await,
            Done::Routed => {
                match work.kept.as_slice() {
                    [] => lock(&self.reports.events).forget(node.uid()),
                    kept => self.report_kept(node, kept),
                }
                self.condition(node, true).await
            }
            Done::Unrouted(why) => {
                self.report_unrouted(node, &why);
                self.condition(node, false).await
            }
        }
    }

    async fn carry_out(
        &self,
        work: &NodePlan,
        node: &NodeView,
        instances: &HashMap<String, Answer>,
    ) -> Result<Done, NotLeader> {
        if work.has_no_range {
            return Ok(Done::NoRange);
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
                tracing::debug!(node = node.name(), why, "deferring the Node's routes");
                Done::Later
            }
            (made, _) => made,
        })
    }

    /// Reports a Node without a route: in the log of the pass, and by an Event if the message is new.
    fn report_unrouted(&self, node: &NodeView, why: &str) {
        lock(&self.failures).add("a Node has no route", &format!("{}: {why}", node.name()));
        let message = format!("The Node's Pods cannot be reached by a route: {why}");
        if lock(&self.reports.events).is_new(node.uid(), &message, Instant::now()) {
            let Deps { events, permit, .. } = self.deps;
            events.warn(permit, &about_node(node), "FailedToCreateRoute", &message);
        }
    }

    /// Reports a Node whose route exists, but would not be created.
    fn report_kept(&self, node: &NodeView, kept: &[String]) {
        let message = format!(
            "A route to the Node stays, although it would not be created now: {}",
            kept.join("; ")
        );
        if lock(&self.reports.events).is_new(node.uid(), &message, Instant::now()) {
            tracing::warn!(node = node.name(), "{message}");
            let Deps { events, permit, .. } = self.deps;
            events.warn(permit, &about_node(node), "RouteRangeRefused", &message);
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
                let example = format!("{}: {}", node.name(), with_causes(&error));
                lock(&self.failures).add("the condition NetworkUnavailable could not be written", &example);
            }
        }

        Ok(())
    }

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
        if self.is_ending() {
            return Ok(Done::Later);
        }

        if !steps.is_empty() && instance.source_dest_check != Some(false) {
            let (id, call) = (&instance.id, self.deps.ec2.disable_source_dest_check(&instance.id));
            if let Err(error) = self.send("ModifyInstanceAttribute", "", id.as_str(), call).await? {
                return Ok(self.interpret(&error, instance, ""));
            }
        }

        for step in steps {
            if self.is_ending() {
                return Ok(Done::Later);
            }
            if let Err(error) = self.route(step, instance).await? {
                match self.interpret(&error, instance, &step.table) {
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

            if let Err(error) = self.delete_existing(table, &cidr).await? {
                return Ok(Err(error));
            }
        }

        let call = ec2.create_route(table, &cidr, id);
        self.send("CreateRoute", table, &about, call).await
    }

    /// Deletes the present route so that it can be created with the new target, as cloud-provider-aws v1.37 does, unless
    /// creation is known to be denied.
    async fn delete_existing(&self, table: &str, cidr: &str) -> Result<Result<(), AwsError>, NotLeader> {
        if let Some(error) = lock(&self.reports.denials).get("CreateRoute", table) {
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

    /// Why a step is skipped: its table is full, or creating routes in it is denied.
    fn unavailable(&self, step: &Step) -> Option<String> {
        if let Some(why) = lock(&self.full).get(&step.table) {
            return Some(why.clone());
        }

        let denials = lock(&self.reports.denials);
        if step.replaces && denials.get(REPLACE, &step.table).is_none() {
            return None;
        }

        let denied = denials.get("CreateRoute", &step.table)?;
        Some(failures::explain(&denied, &step.table))
    }

    /// The result for the Node of a rejected write. Records a full table.
    fn interpret(&self, error: &AwsError, instance: &Instance, table: &str) -> Done {
        let why = failures::explain(error, table);
        match error.kind() {
            // EC2 is eventually consistent; the next pass reads the tables again.
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
