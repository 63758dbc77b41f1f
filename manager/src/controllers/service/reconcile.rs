//! Bringing one Service to its desired state: observe, desired, plan, apply.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::InstanceId;
use tokio::time::Instant;

use super::action::{Next, Work, has_finalizer, work};
use super::context::Context;
use super::error::Error;
use super::events::{self, Doing, Failure};
use super::execute::{Executor, Made, apply};
use super::inventory::target_group_list::Search;
use super::observation::{About, Looked};
use super::orphans::{orphaned_services, release};
use super::plan::Plan;
use super::plan::quota;
use super::plan::revoke_first::with_room;
use super::plan::targets::{self, Candidate, candidates};
use super::queue::creation_slot::makes_one;
use super::queue::reason::{Cause, cause};
use super::queue::service_state::{CONFIRMATION, Memory, SUBNET_CONFIRMATION, Settled};
use super::queue::spec_fingerprint::Shape;
use super::queue::{creation_slot, resync};
use super::spec::annotations::{Annotations, Kind};
use super::spec::desired::desired;
use super::spec::names::{namespaced_name, uid};
use super::spec::network;
use super::writer::Found;
use super::{observation, ownership, patches, update_targets};

/// So long after a look began the address that it wrote may be missing in what is known of the Service: the watch is behind.
const STORE_LAG: Duration = Duration::from_secs(5);

/// Looks at a Service and does what it needs. A failure is told by an Event and remembered for
/// [`retry_after`].
///
/// # Errors
/// What kept the Service from its desired state.
pub async fn reconcile(context: &Context, service: &Service) -> Result<Next, Error> {
    let result = match work(service) {
        Work::Nothing => orphaned_services::release_unmanaged(context, service).await,
        Work::Ensure => {
            let ensured = ensure(context, service).await;
            if let Err(failure) = &ensured {
                update_targets::update_targets(context, service, &failure.error).await;
            }
            ensured
        }
        Work::CleanUp => release::clean_up(context, service).await,
    };
    if let Err(failure) = &result {
        events::report_failure(context, service, failure).await;
    }
    events::report_unread_tags(context, service).await;
    events::report_unlisted_zones(context, service).await;
    result.map_err(|failure| *failure.error)
}

/// How long to wait after a failure.
#[must_use]
pub fn retry_after(context: &Context, service: &Service) -> Duration {
    context.memories.of(uid(service)).retry_after()
}

async fn ensure(context: &Context, service: &Service) -> Result<Next, Failure> {
    let now = Instant::now();
    let shape = Shape::of(service);
    let memory = context.memories.of(uid(service));
    if Annotations::of(service).kind() == Kind::Elsewhere {
        return leave_to_other_controller(context, service, shape, &memory).await;
    }
    let desired = desired(service, &context.settings);
    if Annotations::of(service).kind() == Kind::Network {
        for port in network::ports::without_node_port(service) {
            tracing::warn!(port, "port has no node port and so no listener");
        }
    }
    let labels = desired.as_ref().map(|desired| desired.node_labels().clone());
    let nodes = context.nodes.snapshot();
    let candidates = candidates(&nodes, &labels.unwrap_or_default());
    let likely = likely_targets(&candidates, &memory.targets);
    let settled = memory.settled.as_ref();
    let same_targets = settled.is_some_and(|settled| settled.targets == likely);
    let cause = cause(&memory, &shape, has_finalizer(service), same_targets);
    if let Some(rest) = next_if_unchanged(context, service, &memory, cause, now) {
        return Ok(rest);
    }
    orphaned_services::delete_earlier(context, service).await?;
    context.memories.begin(uid(service), &namespaced_name(service), shape);
    events::report_begin(context, service, cause).await;
    if add_finalizer(context, service).await.doing(events::ADD_FINALIZER)? == Found::Gone {
        return Ok(Next::OnChange);
    }
    let eligible = targets::eligible(&nodes);
    events::report_no_nodes(context, service, eligible.is_empty(), cause).await;
    let names = || eligible.iter().map(|node| node.name().to_owned()).collect();
    let desired = desired.doing(events::ENSURE)?;
    let going = &memory.confirmed_gone(now) | &targets::excluded(&nodes);
    // The finalizer comes before the load balancer: who has none needs one made, and costs no look until its turn.
    let is_new = !has_finalizer(service);
    if (is_new || context.lines.has(uid(service)))
        && let Some(later) = creation_slot::wait_for_creation(context, service, &desired).await
    {
        return Ok(later);
    }
    let about = About {
        service,
        desired: &desired,
        candidates: &candidates,
        going: &going,
        cause,
        due: until_resync(context, service, &memory, now).is_some_and(|left| left.is_zero()),
        no_nodes: eligible.is_empty(),
    };
    let ended = sync_load_balancer(context, &about, memory.search(has_finalizer(service)), now).await;
    if !context.lines.has(uid(service)) {
        context.lines.done(uid(service));
    }
    if context.memories.of(uid(service)).name.is_empty() {
        // It was found missing and forgotten meanwhile. Remembered again, what was made for it goes.
        let shape = Shape::of(service);
        context.memories.begin(uid(service), &namespaced_name(service), shape);
    }
    ended.map_err(|failure| failure.following(cause, names))
}

/// Looks at AWS and does what is needed there, and writes the address.
async fn sync_load_balancer(
    context: &Context,
    about: &About<'_>,
    search: Search,
    now: Instant,
) -> Result<Next, Failure> {
    let About { service, desired, .. } = *about;
    let look = observation::observe(context, about, search).await;
    let looked = look.doing(events::ENSURE)?;
    let owned = ownership::check_owner(context, service, looked.standing.as_ref(), &looked.plan).await;
    owned.doing(events::ENSURE)?;
    if makes_one(&looked.plan)
        && let Some(later) = creation_slot::wait_for_creation(context, service, desired).await
    {
        return Ok(later);
    }
    // Also when a step fails, or a full target group, which needs the loss confirmed, would keep it from ever being so.
    context.memories.update(uid(service), |memory| {
        memory.note_gone(&looked.plan.unconfirmed, &looked.plan.targets, now);
        memory.note_unchosen(&looked.plan.unchosen_subnets, now);
        memory.given_names.extend(looked.given_names.iter().cloned());
    });
    events::report_scheme(context, service, desired, looked.scheme.as_deref()).await;
    let made = execute(context, about, &looked).await.doing(events::ENSURE)?;
    if let Some(dns_name) = &made.dns_name {
        ownership::remember_owned(context, service, dns_name);
    }
    if let Some(refused) = looked.plan.refused.clone() {
        return Err(Error::World(refused)).doing(events::ENSURE);
    }
    let refused = made.refused.into_iter().map(|refused| refused.instance).collect();
    let hostname = made.dns_name.or(looked.hostname).unwrap_or_default();
    if write_address(context, service, &hostname)
        .await
        .doing(events::WRITE_STATUS)?
        == Found::Gone
    {
        return Ok(Next::OnChange);
    }
    if let Some(denied) = looked.denied {
        return Err(Error::Aws(denied)).doing(events::ENSURE);
    }
    context.memories.update(uid(service), |memory| {
        memory.tags_set = desired.annotated_tags();
        memory.given_names.clone_from(&looked.given_names);
    });
    let settled = Settled {
        targets: likely_targets(about.candidates, &looked.plan.targets),
        at: now,
        hostname,
    };
    if looked.whole {
        context.memories.update(uid(service), |memory| memory.whole = Some(now));
    }
    Ok(settle(context, service, settled, looked.plan, &refused))
}

/// When to look again, if nothing has to be done now: the last look was made from the same, not too long ago, and
/// its address stands in the status.
fn next_if_unchanged(
    context: &Context,
    service: &Service,
    memory: &Memory,
    cause: Cause,
    now: Instant,
) -> Option<Next> {
    let settled = memory.settled.as_ref().filter(|_| cause == Cause::Resync)?;
    if !patches::has_address(service, &settled.hostname) {
        let wait = STORE_LAG.checked_sub(now.saturating_duration_since(settled.at))?;
        return (!wait.is_zero()).then_some(Next::After(wait));
    }
    match until_resync(context, service, memory, now) {
        None => Some(Next::OnChange),
        Some(left) => (!left.is_zero()).then_some(Next::After(left)),
    }
}

/// How long until everything is to be looked at again, in search of drift; `None`: never.
fn until_resync(context: &Context, service: &Service, memory: &Memory, now: Instant) -> Option<Duration> {
    let Some(whole) = memory.whole else {
        return Some(Duration::ZERO);
    };
    let after = resync::after(context.settings.resync_period, uid(service))?;
    Some(after.saturating_sub(now.saturating_duration_since(whole)))
}

/// The finalizer comes before anything that would have to be cleaned up.
async fn add_finalizer(context: &Context, service: &Service) -> Result<Found, Error> {
    if has_finalizer(service) {
        return Ok(Found::There);
    }
    context
        .writer
        .patch(service, "add the finalizer", patches::add_finalizer(service))
        .await
}

/// A Service for the AWS load balancer controller: it gets the finalizer, as it always did, and nothing else.
async fn leave_to_other_controller(
    context: &Context,
    service: &Service,
    shape: Shape,
    memory: &Memory,
) -> Result<Next, Failure> {
    let cause = cause(memory, &shape, has_finalizer(service), true);
    context.memories.begin(uid(service), &namespaced_name(service), shape);
    events::report_begin(context, service, cause).await;
    add_finalizer(context, service).await.doing(events::ADD_FINALIZER)?;
    let nodes = context.nodes.snapshot();
    events::report_no_nodes(context, service, targets::eligible(&nodes).is_empty(), cause).await;
    Ok(Next::OnChange)
}

async fn execute(context: &Context, about: &About<'_>, looked: &Looked) -> Result<Made, Error> {
    let About {
        service,
        cause,
        no_nodes,
        ..
    } = *about;
    let plan = &with_room(looked.plan.clone(), &looked.groups, context.settings.rules_quota);
    let fullness = quota::check(plan, &looked.groups, context.settings.rules_quota)?;
    events::report_fullness(context, service, fullness).await;
    events::report_writes(context, service, plan, cause).await;
    let began = Instant::now();
    let made = apply(plan, &Executor::new(context, service, about.desired.name())).await;
    if plan.changes_targets_only() || (cause == Cause::Nodes && !plan.steps.is_empty()) {
        let done = plan.refused.is_none() && made.as_ref().is_ok_and(|made| made.refused.is_empty());
        context.node_sync.ended(began, done);
    }
    let made = made?;
    events::report_refused(context, service, &made.refused).await;
    if plan.refused.is_none() {
        events::report_done(context, service, plan, cause, no_nodes || !made.refused.is_empty()).await;
    }
    Ok(made)
}

async fn write_address(context: &Context, service: &Service, hostname: &str) -> Result<Found, Error> {
    if hostname.is_empty() || patches::has_address(service, hostname) {
        return Ok(Found::There);
    }
    context
        .writer
        .patch(
            service,
            "write the load balancer's address",
            patches::address(service, hostname),
        )
        .await
}

/// Remembers the look, and says when the next is due: soon, while a loss of targets waits to be confirmed, a
/// Ready node's instance is not listed by EC2 yet, AWS has refused a target, the address is not known, or a rule may just
/// be going with the load balancer that has brought it.
fn settle(context: &Context, service: &Service, settled: Settled, plan: Plan, refused: &BTreeSet<InstanceId>) -> Next {
    let only_targets = plan.changes_targets_only();
    let (unconfirmed, targets) = (plan.unconfirmed, &plan.targets - refused);
    if !unconfirmed.is_empty() {
        let service = uid(service);
        tracing::warn!(service, targets = ?unconfirmed, "many targets look gone at once; looking again before they go");
    }
    let losing = !unconfirmed.is_empty();
    // A target without a candidate is one that is held back until everything is known.
    let held = targets.difference(&settled.targets).any(|id| !unconfirmed.contains(id));
    let until_settled = context.settled_at.saturating_duration_since(settled.at);
    let missing = !settled.targets.is_subset(&targets) || !refused.is_empty();
    // A rule that another load balancer has brought may just be going with it: who has relied on it when something was made
    // looks again, until no deletion is under way.
    let made = !plan.steps.is_empty() && !only_targets;
    let relied = context.memories.of(uid(service)).relies;
    let relies = plan.borrowed && (made || (relied && context.deleting.try_lock().is_err()));
    let unchosen = !plan.unchosen_subnets.is_empty();
    let open = relies || losing || held || unchosen || settled.hostname.is_empty() || missing;
    context.memories.update(uid(service), |memory| {
        if !losing {
            memory.all_there();
        }
        if !unchosen {
            memory.all_chosen();
        }
        memory.relies = relies;
        memory.waiting = losing || held || !refused.is_empty();
        if open {
            memory.leave_open(targets);
            return Next::After(match (losing, held) {
                (true, _) => CONFIRMATION,
                (false, true) => until_settled.max(CONFIRMATION),
                (false, false) if unchosen => SUBNET_CONFIRMATION,
                (false, false) => memory.look_again_after(),
            });
        }
        let now = settled.at;
        memory.settle(settled, targets);
        until_resync(context, service, memory, now).map_or(Next::OnChange, Next::After)
    })
}

fn likely_targets(candidates: &[Candidate], targets: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
    let likely = candidates
        .iter()
        .filter(|candidate| candidate.ready || targets.contains(&candidate.id));
    likely.map(|candidate| candidate.id.clone()).collect()
}
