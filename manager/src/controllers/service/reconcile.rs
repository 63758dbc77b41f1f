//! Reconciles one Service: desired, observe, plan, execute.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::InstanceId;
use tokio::time::Instant;

use super::action::{Next, ServiceAction, action, has_finalizer};
use super::context::Context;
use super::error::Error;
use super::events::{self, During, Failure};
use super::execute::node_groups::{claim_after_failures, claim_as_is, claim_nothing};
use super::execute::{Applied, Created, apply_within, is_quota};
use super::inventory::account::Search;
use super::observation::{Observation, Pass};
use super::plan::quota::{RuleCounts, revoke_where_full};
use super::plan::targets::{self, candidates};
use super::plan::{Plan, quota};
use super::queue::creation_queue::Slot;
use super::queue::service_state::{
    CONFIRMATION, Done, Reason, SUBNET_CONFIRMATION, ServiceState, SpecFingerprint, hash_of, reason,
};
use super::spec::annotations::{Annotations, Kind};
use super::spec::desired::{Desired, desired, network};
use super::spec::names::uid;
use super::spec::request;
use super::writer::Found;
use super::{observation, orphans, update_targets, writer};

/// For this time after a reconciliation the watch may not have delivered the address that it wrote.
const STORE_LAG: Duration = Duration::from_secs(5);

/// The period of one Service differs from the configured one by up to this percentage, so that all Services of a start
/// are not resynced at once.
const SPREAD_PERCENT: u64 = 10;

const CREATE: &str = "CreateLoadBalancer";

/// Reconciles a Service. A failure is reported by an Event and counts for [`retry_after`].
pub async fn reconcile(context: &Context, service: &Service) -> Result<Next, Error> {
    let action = action(service);
    let result = match action {
        ServiceAction::Ignore => orphans::release_unmanaged(context, service).await,
        ServiceAction::Ensure => Box::pin(ensure_or_update(context, service)).await,
        ServiceAction::Delete => orphans::clean_up(context, service).await,
    };

    if let Err(failure) = &result {
        events::report_failure(context, service, failure).await;
    }

    // Each is emitted once, and an Event about a Service without a load balancer is not noticed.
    if action != ServiceAction::Ignore {
        events::report_unread_tags(context, service).await;
        events::report_unlisted_zones(context, service).await;
    }

    result.map_err(|failure| *failure.error)
}

async fn ensure_or_update(context: &Context, service: &Service) -> Result<Next, Failure> {
    let ensured = ensure(context, service).await;
    if let Err(failure) = &ensured {
        update_targets::update_targets(context, service, &failure.error).await;
        claim_after_failures(context, service);
    }
    ensured
}

pub fn retry_after(context: &Context, service: &Service) -> Duration {
    context.states.with(uid(service), ServiceState::retry_after)
}

async fn ensure(context: &Context, service: &Service) -> Result<Next, Failure> {
    let now = Instant::now();
    if Annotations::of(service).kind() == Kind::External {
        return leave_to_other_controller(context, service).await;
    }

    let desired = desired(service, &context.settings);
    if Annotations::of(service).kind() == Kind::Network {
        for port in network::without_node_port(service) {
            tracing::warn!(port, "creating no listener for a port without a node port");
        }
    }

    let labels = desired.as_ref().map(|desired| desired.node_labels().clone());
    let nodes = context.nodes.snapshot();
    let candidates = candidates(&nodes, &labels.unwrap_or_default());
    let registered = context.states.with(uid(service), |state| Arc::clone(&state.targets));
    let likely = hash_of(&targets::likely(&candidates, &registered));
    let read = |state: &ServiceState| Before::of(context, service, state, (likely, now));
    let before = context.states.with(uid(service), read);
    let reason = before.reason;
    if let Some(rest) = before.rest {
        return Ok(rest);
    }

    orphans::delete_earlier(context, service).await?;
    context.states.begin(service);
    events::report_begin(context, service, reason).await;
    if !has_finalizer(service) && request::kind_in_status(service).is_none() {
        claim_nothing(context, service);
    }
    if add_finalizer(context, service).await.during(events::ADD_FINALIZER)? == Found::Gone {
        return Ok(Next::OnChange);
    }

    let eligible = targets::eligible(&nodes);
    events::report_no_nodes(context, service, eligible.is_empty(), reason).await;

    let names = || eligible.iter().map(|node| node.name().to_owned()).collect();
    let desired = desired.during(events::ENSURE)?;
    let going = &before.gone | &targets::excluded(&nodes);
    // A Service without our finalizer has no load balancer yet, so skip the AWS reads until a creation slot is free.
    let is_new = !has_finalizer(service);
    if (is_new || context.creation_queues.has(uid(service)))
        && let Some(later) = wait_for_creation(context, service, &desired).await
    {
        return Ok(later);
    }

    let pass = Pass {
        service,
        desired: &desired,
        candidates: &candidates,
        going: &going,
        reason,
        due: before.is_due,
        was_full: before.was_full,
        is_in_memory: before.is_in_memory,
        no_nodes: eligible.is_empty(),
    };

    let ended = sync_load_balancer(context, &pass, before.search, now).await;
    if !context.creation_queues.has(uid(service)) {
        context.creation_queues.done(uid(service));
    }

    if context.states.with(uid(service), |state| state.name.is_empty()) {
        // The Service was deleted meanwhile and its state dropped. Restore the state, so that the new resources are
        // deleted as orphaned.
        context.states.begin(service);
    }

    ended.map_err(|failure| failure.after_node_change(reason, names))
}

/// The conclusions from the state of the Service for this reconciliation.
struct Before {
    reason: Reason,
    /// The next reconciliation, if there is nothing to do now.
    rest: Option<Next>,
    /// Targets with a confirmed loss.
    gone: BTreeSet<InstanceId>,
    /// Whether the next full observation is due.
    is_due: bool,
    was_full: bool,
    is_in_memory: bool,
    search: Search,
}

impl Before {
    /// `likely`: the targets by [`hash_of`].
    fn of(context: &Context, service: &Service, state: &ServiceState, (likely, now): (u64, Instant)) -> Self {
        let done = state.done.as_ref();
        let same_targets = done.is_some_and(|done| done.targets == likely);
        let is_held = has_finalizer(service);
        let reason = reason(state, SpecFingerprint::of(service), is_held, same_targets);
        Self {
            reason,
            rest: next_if_unchanged(context, service, state, reason, now),
            gone: state.confirmed_gone(now),
            is_due: until_resync(context, service, state, now).is_some_and(|left| left.is_zero()),
            was_full: state.last_full.is_some(),
            is_in_memory: state.is_in_memory,
            search: state.search(is_held),
        }
    }
}

/// Observes AWS, executes the plan and writes the address.
async fn sync_load_balancer(context: &Context, pass: &Pass<'_>, search: Search, now: Instant) -> Result<Next, Failure> {
    let Pass { service, desired, .. } = *pass;
    let look = observation::observe(context, pass, search).await;
    let observation = look.during(events::ENSURE)?;
    let owned = observation::check_owner(context, service, observation.identity.as_ref(), &observation.plan).await;
    owned.during(events::ENSURE)?;
    if observation.plan.creates_balancer()
        && let Some(later) = wait_for_creation(context, service, desired).await
    {
        return Ok(later);
    }

    // Recorded before the writes: a full target group needs the confirmed loss, and a failed step must not prevent the
    // confirmation.
    context.states.update(uid(service), |state| {
        state.note_gone(&observation.plan.unconfirmed, &observation.plan.targets, now);
        state.note_unchosen(&observation.plan.unchosen_subnets, now);
        state.given_names.extend(observation.given_names.iter().cloned());
    });
    events::report_scheme(context, service, desired, observation.scheme.as_deref()).await;
    events::report_source_ranges(context, service, observation.ignores_source_ranges).await;
    events::report_reserved_tags(context, service).await;

    let Applied { created: made, failure } = execute(context, pass, &observation).await.during(events::ENSURE)?;
    if let Some(dns_name) = &made.dns_name {
        observation::remember_owned(context, service, dns_name);
    }
    if let Some(error) = failure {
        if is_quota(&error) && serves(&observation, &made) {
            let hostname = made.dns_name.or(observation.hostname).unwrap_or_default();
            write_address(context, service, &hostname)
                .await
                .during(events::WRITE_STATUS)?;
        }
        return Err(error).during(events::ENSURE);
    }

    if let Some(refused) = observation.plan.refused.clone() {
        return Err(Error::Environment(refused)).during(events::ENSURE);
    }

    let is_deferred = !made.deferred.is_empty();
    let refused = made.refused.into_iter().map(|refused| refused.instance).collect();
    let hostname = made.dns_name.or(observation.hostname).unwrap_or_default();
    let written = write_address(context, service, &hostname).await;
    if written.during(events::WRITE_STATUS)? == Found::Gone {
        return Ok(Next::OnChange);
    }
    if let Some(denied) = observation.denied {
        return Err(Error::Aws(denied)).during(events::ENSURE);
    }

    context.states.update(uid(service), |state| {
        state.tags_set = desired.annotated_tags();
        state.given_names.clone_from(&observation.given_names);
    });

    let likely = targets::likely(pass.candidates, &observation.plan.targets);
    let done = Done {
        targets: hash_of(&likely),
        at: now,
        hostname,
    };

    context.states.update(uid(service), |state| match observation.is_full {
        true => state.last_full = Some(now),
        false if state.last_full.is_none() && state.first_full.is_none() => {
            state.first_full = Some(context.first_full.next(now));
        }
        false => {}
    });

    Ok(settle(
        context,
        service,
        (done, &likely),
        observation.plan,
        (&refused, is_deferred),
    ))
}

/// The next reconciliation, if there is nothing to do now: spec and targets are unchanged, nothing is open, and the
/// next full observation is not due. If the status lacks the address, the watch may not have delivered it yet; that is
/// checked again [`STORE_LAG`] after the last reconciliation.
fn next_if_unchanged(
    context: &Context,
    service: &Service,
    state: &ServiceState,
    reason: Reason,
    now: Instant,
) -> Option<Next> {
    let done = state.done.as_ref();
    let done = done.filter(|_| matches!(reason, Reason::Restart | Reason::Resync))?;
    if !writer::has_address(service, &done.hostname) {
        let wait = STORE_LAG.checked_sub(now.saturating_duration_since(done.at))?;
        return (!wait.is_zero()).then_some(Next::After(wait));
    }

    match until_resync(context, service, state, now) {
        None => Some(Next::OnChange),
        Some(left) => (!left.is_zero()).then_some(Next::After(left)),
    }
}

/// Time until the next full observation, which detects drift; `None`: it is not planned.
fn until_resync(context: &Context, service: &Service, state: &ServiceState, now: Instant) -> Option<Duration> {
    let due = match state.last_full {
        Some(last) => last + resync_after(context.settings.resync_period, uid(service))?,
        None => state.first_full?,
    };
    Some(due.saturating_duration_since(now))
}

/// Adds the finalizer, before anything is created that needs cleanup.
async fn add_finalizer(context: &Context, service: &Service) -> Result<Found, Error> {
    if has_finalizer(service) {
        return Ok(Found::There);
    }
    let patch = writer::add_finalizer(service);
    context.writer.patch(service, "add the finalizer", patch).await
}

/// Adds the finalizer to a Service of the AWS Load Balancer Controller, as v1.37 does, and nothing else.
async fn leave_to_other_controller(context: &Context, service: &Service) -> Result<Next, Failure> {
    let (fingerprint, is_held) = (SpecFingerprint::of(service), has_finalizer(service));
    let read = |state: &ServiceState| reason(state, fingerprint, is_held, true);
    let reason = context.states.with(uid(service), read);
    context.states.begin(service);
    events::report_begin(context, service, reason).await;
    claim_as_is(context, service);
    add_finalizer(context, service).await.during(events::ADD_FINALIZER)?;

    let nodes = context.nodes.snapshot();
    events::report_no_nodes(context, service, targets::eligible(&nodes).is_empty(), reason).await;

    Ok(Next::OnChange)
}

/// Whether some clients reach some Nodes, although a quota has stopped a part of the plan.
fn serves(observation: &Observation, made: &Created) -> bool {
    if observation.hostname.is_some() {
        return observation.has_listeners || made.listeners > 0;
    }
    // A classic load balancer is created with its listeners.
    let has_listeners = made.listeners > 0 || made.load_balancer.is_none();
    has_listeners && (made.full_groups.is_empty() || made.opened > 0)
}

/// Fails before the first write if a configured quota does not allow the plan.
async fn execute(context: &Context, pass: &Pass<'_>, observation: &Observation) -> Result<Applied, Error> {
    let (service, reason) = (pass.service, pass.reason);
    let (groups, rules_quota) = (&observation.groups, context.settings.rules_quota);
    let plan = revoke_where_full(observation.plan.clone(), groups, rules_quota);
    let counts = RuleCounts::of(&plan, groups, rules_quota);
    let plan = &plan;
    let fullness = quota::check(plan, groups, rules_quota)?;
    events::report_fullness(context, service, fullness).await;
    events::report_writes(context, service, plan, reason).await;

    let began = Instant::now();
    let applied = apply_within(context, service, pass.desired.name(), plan, &counts).await;
    let Applied { created: made, failure } = &applied;
    if plan.changes_targets_only() || (reason == Reason::NodesChanged && !plan.steps.is_empty()) {
        let done = plan.refused.is_none() && failure.is_none() && made.refused.is_empty();
        context.node_sync.ended(began, done);
    }

    events::report_refused(context, service, &made.refused).await;
    events::report_few_targets(context, service, &made.refused, failure.as_ref()).await;
    events::report_full_groups(
        context,
        service,
        made.full_groups.iter().map(|group| counts.after(group)),
    )
    .await;
    if plan.refused.is_none() && failure.is_none() {
        let is_partial = pass.no_nodes || !made.refused.is_empty();
        events::report_done(context, service, plan, reason, is_partial).await;
    }

    Ok(applied)
}

async fn write_address(context: &Context, service: &Service, hostname: &str) -> Result<Found, Error> {
    if hostname.is_empty() || writer::has_address(service, hostname) {
        return Ok(Found::There);
    }
    let (operation, patch) = ("write the load balancer's address", writer::address(service, hostname));
    context.writer.patch(service, operation, patch).await
}

/// Records the result and returns when to reconcile next. That is soon if something is open: a loss of targets or an
/// unchosen subnet is unconfirmed; a target without a candidate is kept until all Nodes are known; a Ready Node is no
/// target, because EC2 does not list its instance, the instance is terminating or lacks the cluster's tag, or AWS has
/// refused it; the address is unknown; or rules are revoked when all Services have claimed.
fn settle(
    context: &Context,
    service: &Service,
    (done, likely): (Done, &BTreeSet<InstanceId>),
    plan: Plan,
    (refused, is_deferred): (&BTreeSet<InstanceId>, bool),
) -> Next {
    let (unconfirmed, targets) = (plan.unconfirmed, &plan.targets - refused);
    if !unconfirmed.is_empty() {
        let service = uid(service);
        tracing::warn!(service, targets = ?unconfirmed, "mass loss of targets; confirming it before deregistration");
    }

    let losing = !unconfirmed.is_empty();
    // A target without a candidate is kept until all Nodes are known.
    let held = targets.difference(likely).any(|id| !unconfirmed.contains(id));
    let until_settled = context.settled_at.saturating_duration_since(done.at);
    let missing = !likely.is_subset(&targets) || !refused.is_empty();
    let unchosen = !plan.unchosen_subnets.is_empty();
    let open = losing || held || unchosen || done.hostname.is_empty() || missing || is_deferred;

    let targets = context.states.share(targets);
    context.states.update(uid(service), |state| {
        if !losing {
            state.clear_gone();
        }

        if !unchosen {
            state.clear_unchosen();
        }

        state.waiting = losing || held || !refused.is_empty();
        state.is_in_memory = !state.waiting && !done.hostname.is_empty();
        if open {
            state.leave_open(targets);
            return Next::After(match (losing, held) {
                (true, _) => CONFIRMATION,
                (false, true) => until_settled.max(CONFIRMATION),
                (false, false) if unchosen => SUBNET_CONFIRMATION,
                (false, false) => state.requeue_after(),
            });
        }

        let now = done.at;
        state.settle(done, targets);

        until_resync(context, service, state, now).map_or(Next::OnChange, Next::After)
    })
}

/// When to reconcile again, if no load balancer can be created for this Service now. A long wait is reported.
pub(crate) async fn wait_for_creation(context: &Context, service: &Service, desired: &Desired) -> Option<Next> {
    let wait = |ahead| match desired {
        Desired::Classic(_) => context.aws.elb.expected_wait(CREATE, ahead),
        Desired::Network(_) => context.aws.elbv2.expected_wait(CREATE, ahead),
    };
    let queue = context.creation_queues.of(desired);
    let slot = queue.request(uid(service), wait, Instant::now());
    let Slot::Later { wait, ahead, report } = slot else {
        return None;
    };

    // If the load balancer was deleted by hand, the Service counted as settled and would rest until the next resync.
    context.states.update(uid(service), |state| state.done = None);
    if report {
        let message = format!(
            "Waiting to create load balancer: AWS limits how many an account may create (Services \
             ahead in the queue: {ahead}); expected in about {} s",
            wait.as_secs_f64().ceil()
        );
        events::emit(context, service, "WaitingToCreateLoadBalancer", &message).await;
    }

    Some(Next::After(wait))
}

/// Time between two full observations; `None`: never. It is always the same for one Service.
fn resync_after(period: Option<Duration>, uid: &str) -> Option<Duration> {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    // In thousandths, from 900 to 1100.
    let share = 1000 - SPREAD_PERCENT * 10 + hasher.finish() % (SPREAD_PERCENT * 20 + 1);
    let share = u32::try_from(share).unwrap_or(1000);
    period.map(|period| period.saturating_mul(share) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn services_are_spread_around_the_period_and_each_keeps_its_place() {
        let period = Duration::from_secs(1800);
        let times: BTreeSet<Duration> = (0..500)
            .filter_map(|n| resync_after(Some(period), &format!("uid-{n}")))
            .collect();
        assert!(times.len() > 100, "{} different times", times.len());
        assert!(times.first() >= Some(&(period * 9 / 10)) && times.last() <= Some(&(period * 11 / 10)));
        assert_eq!(resync_after(Some(period), "a"), resync_after(Some(period), "a"));
        assert_eq!(resync_after(None, "a"), None);
    }
}
