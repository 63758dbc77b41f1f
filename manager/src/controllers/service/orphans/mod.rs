//! Deletes the AWS resources of Services that are deleted, gone, or request no load balancer any more.
//!
//! A deletion releases its Service also if AWS denies a part of it permanently. Then the load balancer is gone, but a
//! security group, rules or target groups are left, since the role may not delete them or something else uses them.
//! Otherwise the Service would keep its finalizer, and its namespace would never be deleted. v1.37 removes the
//! finalizer at the next try.
//!
//! A Service disappears without a deletion if a user removes its finalizer by force, or a new Service has the same name.
//! Its AWS resources are deleted if this process has state of it; the sweep finds the others.

pub mod sweep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::Store;
use outrigger_aws::Kind as AwsKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::action::{Next, has_class, has_finalizer};
use super::context::Context;
use super::error::Error;
use super::events::{self, During, Failure};
use super::execute::apply;
use super::execute::node_groups::plan_with_claims;
use super::plan::Plan;
use super::plan::targets::candidates;
use super::queue::service_state::ServiceState;
use super::queue::watch::of_key;
use super::spec::annotations::{Annotations, Kind};
use super::spec::names::{self, namespaced_name, other_owner, uid};
use super::spec::request;
use super::{inventory, plan, writer};
use crate::confirmation::{FirstSeen, LossLimit};

/// Deletes the AWS resources of a Service. Returns whether there were any.
async fn delete(context: &Context, service: &Service) -> Result<bool, Failure> {
    let name = names::load_balancer(uid(service));
    if Annotations::of(service).kind() == Kind::External {
        context.node_groups.with(|claims| claims.forget(&name));
        return Ok(false);
    }

    // Without leadership nothing is read either.
    context.permit.check().during(events::CHECK_BEFORE_CLEANUP)?;

    let plan = plan_deletion(context, service).await;
    let plan = plan.during(events::CHECK_BEFORE_CLEANUP)?;
    events::report_deletion(context, service, &plan).await;
    context.states.update(uid(service), |state| {
        state.note_balancer(&plan);
        state.had_resources |= !plan.steps.is_empty() || plan.is_deferred();
    });

    let made = apply(context, service, &name, &plan).await.during(events::DELETE)?;
    if let Some(group) = made.deferred.into_iter().next() {
        return Err(Error::RulesDeferred { group }).during(events::DELETE);
    }
    context.node_groups.with(|claims| claims.forget(&name));
    context.aws.shared.facts.forget(&name);

    Ok(!plan.steps.is_empty())
}

/// Plans the deletion of load balancers of both kinds: the annotation may have changed since the creation.
async fn plan_deletion(context: &Context, service: &Service) -> Result<Plan, Error> {
    let (name, since) = (names::load_balancer(uid(service)), Instant::now());
    let nodes = candidates(&context.nodes.snapshot(), &BTreeMap::new());
    let nodes = nodes.into_iter().map(|candidate| candidate.id).collect();
    let given = &context.states.with(uid(service), |state| state.given_names.clone());
    let (aws, settings) = (&context.aws, &context.settings);
    let network = inventory::network::owned_resources(aws, service, settings, &nodes, given).await?;
    let mut plan = plan_with_claims(context, (&name, since), |claims| {
        Ok::<_, Error>(plan::network::plan_deletion(&network, settings, claims))
    })?;
    let classic = inventory::classic::owned_resources(&context.aws, service, &context.settings).await?;

    for tags in [&network.tags, &classic.tags] {
        if let Some(owner) = other_owner(tags.as_ref(), &context.settings) {
            tracing::warn!(
                service = namespaced_name(service),
                owner,
                "not deleting the load balancer: its tags name another cluster"
            );
        }
    }

    let steps = plan::classic::plan_deletion(&classic, &context.settings).steps;
    plan.steps.extend(steps);

    Ok(plan)
}

/// Time from the request of the deletion to the removal of the finalizer. The `deletionTimestamp` outlives a change of
/// leaders.
const RELEASE_AFTER: Duration = Duration::from_secs(1800);

/// Time for which this process has observed that the load balancer is gone. AWS releases its network interfaces, and
/// with them its security group, some minutes later; v1.37 waits up to 10 minutes for that:
/// <https://github.com/kubernetes/cloud-provider-aws/blob/v1.37.1/pkg/providers/v1/aws_loadbalancer.go>.
const WITHOUT_BALANCER: Duration = Duration::from_secs(600);

/// Whether a failed deletion has lasted long enough to be ended.
fn is_due(service: &Service, state: &ServiceState, now: Timestamp) -> bool {
    let Some(requested) = &service.metadata.deletion_timestamp else {
        return false;
    };
    let lasted = Duration::try_from(now.duration_since(requested.0)).unwrap_or_default();
    let gone = state.balancer_gone.map(|since| since.elapsed());
    lasted >= RELEASE_AFTER && gone.is_some_and(|gone| gone >= WITHOUT_BALANCER)
}

/// Whether AWS will refuse the same deletion again until someone changes something.
fn lasts(error: &Error) -> bool {
    match error {
        Error::TargetGroupInUse { .. } | Error::GroupInUse { .. } => true,
        Error::Aws(error) => error.kind() == AwsKind::AccessDenied && !error.operation().starts_with("Describe"),
        Error::Invalid(_)
        | Error::Environment(_)
        | Error::Kubernetes { .. }
        | Error::NotLeader(_)
        | Error::RulesDeferred { .. } => false,
    }
}

/// Deletes the load balancers of a Service and removes the finalizer.
/// If a write fails, the finalizer stays.
pub(super) async fn clean_up(context: &Context, service: &Service) -> Result<Next, Failure> {
    context.states.begin(service);
    context.creation_queues.done(uid(service));

    let complete = match delete(context, service).await {
        Ok(_) => true,
        Err(failure) => end_denied_deletion(context, service, failure).await?,
    };
    let had_resources = context.states.with(uid(service), |state| state.had_resources)
        || request::has_address_of(service, &names::load_balancer(uid(service)));
    if !had_resources && has_class(service) {
        // The finalizer belongs to the controller of the class, which may still need it.
        context.states.forget(uid(service));
        return Ok(Next::OnChange);
    }

    let release = writer::release(service);
    let released = context.writer.patch(service, "remove the finalizer", release).await;
    released.during(events::REMOVE_FINALIZER)?;
    if complete {
        events::report_deleted(context, service).await;
    } else {
        let name = names::load_balancer(uid(service));
        context.node_groups.with(|claims| claims.abandon(&name));
    }

    context.states.forget(uid(service));

    Ok(Next::OnChange)
}

/// Ends a deletion that AWS denies for good, with an Event that names what is left at AWS. Returns whether nothing is
/// left.
/// Returns the failure itself, if the deletion has to be retried.
async fn end_denied_deletion(context: &Context, service: &Service, failure: Failure) -> Result<bool, Failure> {
    let is_due = context
        .states
        .with(uid(service), |state| is_due(service, state, Timestamp::now()));
    if !lasts(&failure.error) || !is_due {
        return Err(failure);
    }
    let Ok(left) = plan_deletion(context, service).await else {
        return Err(failure);
    };
    if left.deletes_balancer() || left.is_deferred() {
        return Err(failure);
    }
    if left.steps.is_empty() {
        return Ok(true);
    }

    let steps: Vec<String> = left.steps.iter().map(|planned| planned.step.removes()).collect();
    let message = format!(
        "The load balancer is deleted. After {} minutes the finalizer is removed, although these AWS resources remain, \
         each with the action that deletes it: {}. Allow these actions, or end the other use; then delete the resources \
         by hand or with --load-balancer-sweep=delete: {}",
        RELEASE_AFTER.as_secs() / 60,
        steps.join(", "),
        failure.error.chain()
    );

    tracing::warn!(left = ?steps, "removing the finalizer although AWS resources of the Service remain");
    events::warn(context, service, "DeleteLoadBalancerIncomplete", &message).await;

    Ok(false)
}

/// Time between two searches. A Service must be missing in two of them: during a normal deletion it is missing for a
/// moment before its state is dropped.
const PERIOD: Duration = Duration::from_secs(10);

/// Missing Services, and the backoff of failed deletions.
#[derive(Debug, Default)]
pub(super) struct MissingServices {
    seen: FirstSeen<String>,
    not_before: HashMap<String, Instant>,
    /// Services that were missing in a mass loss: their resources are kept.
    kept: BTreeSet<String>,
}

pub(super) async fn watch(context: &Context, services: &Store<Service>, stop: &CancellationToken) {
    let mut missing = MissingServices::default();
    let exists = |name: &str, of: &str| of_key(services, name).is_some_and(|service| uid(&service) == of);

    while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
        // Every cluster has this Service. If it is missing, the list is incomplete.
        if of_key(services, "default/kubernetes").is_some() {
            delete_orphaned(context, &mut missing, exists).await;
        }
    }
}

/// How many Services may be missing at once. If there are more, the API server was more likely restored from an old
/// backup.
const LIMIT: LossLimit = LossLimit { few: 3, percent: 20 };

/// Deletes the resources of Services that were missing in this search and in the last one, by name and UID. A new
/// Service of the same name may be unmanaged, and then never deletes the earlier resources.
pub(super) async fn delete_orphaned(
    context: &Context,
    missing: &mut MissingServices,
    exists: impl Fn(&str, &str) -> bool,
) {
    let now = Instant::now();
    let names = context.states.names().into_iter();
    let (gone, there): (Vec<_>, Vec<_>) = names.partition(|(name, uid)| !exists(name, uid));
    let mut gone: BTreeMap<String, String> = gone.into_iter().map(|(name, uid)| (uid, name)).collect();
    missing.not_before.retain(|uid, _| gone.contains_key(uid));
    missing.kept.retain(|uid| gone.contains_key(uid));
    gone.retain(|uid, _| !missing.kept.contains(uid));

    missing.seen.note_all(gone.keys().cloned(), now);
    let of = gone.len() + there.len();
    if LIMIT.is_exceeded(gone.len(), of) {
        tracing::error!(
            missing = gone.len(),
            of,
            "mass loss: more than a fifth of the Services disappeared without a deletion; keeping their AWS resources (if the \
             Services are really gone, the sweep finds them)"
        );
        missing.kept.extend(gone.into_keys());
        return;
    }

    let seen = &missing.seen;
    gone.retain(|uid, _| seen.get(uid).is_some_and(|seen| seen.times > 1));
    for (uid, name) in &gone {
        let waits = missing.not_before.get(uid).is_some_and(|time| now < *time);
        // An earlier deletion of this loop may have taken minutes.
        if waits || exists(name, uid) {
            continue;
        }

        match delete_orphan(context, uid).await {
            Ok(()) => {}
            Err(failure) if matches!(*failure.error, Error::NotLeader(_)) => return,
            Err(_) => {
                let pause = context.states.with(uid, ServiceState::retry_after);
                missing.not_before.insert(uid.clone(), now + pause);
            }
        }
    }
}

/// Deletes the resources of earlier Services of the same name, before any is created for the new one.
pub(super) async fn delete_earlier(context: &Context, service: &Service) -> Result<(), Failure> {
    for earlier in context.states.earlier(&namespaced_name(service), uid(service)) {
        delete_orphan(context, &earlier).await?;
    }
    Ok(())
}

/// Releases a Service that requests no load balancer. If it did a moment ago, its resources are deleted; if it has a
/// class now, the finalizer is removed too.
pub(super) async fn release_unmanaged(context: &Context, service: &Service) -> Result<Next, Failure> {
    let before = context.states.with(uid(service), |state| state.remains(uid(service)));
    let had_one = before.is_some_and(|before| Annotations::of(&before).kind() != Kind::External);
    let deleted = delete_remembered(context, uid(service)).await;
    deleted.map_err(|(_, failure)| failure)?;

    if had_one && has_finalizer(service) {
        let release = match request::has_address_of(service, &names::load_balancer(uid(service))) {
            true => writer::release(service),
            false => writer::release_only(service),
        };
        let released = context.writer.patch(service, "remove the finalizer", release).await;
        released.during(events::REMOVE_FINALIZER)?;
    }

    // Only now: the state says that the finalizer is this controller's.
    context.states.forget(uid(service));

    Ok(Next::OnChange)
}

async fn delete_orphan(context: &Context, uid: &str) -> Result<(), Failure> {
    if let Err((remains, failure)) = delete_remembered(context, uid).await {
        events::report_failure(context, &remains, &failure).await;
        return Err(failure);
    }
    context.states.forget(uid);
    Ok(())
}

/// Deletes the resources of a Service that this process has state of. A failure is returned with the remains of the
/// Service.
async fn delete_remembered(context: &Context, uid: &str) -> Result<(), (Service, Failure)> {
    let Some(remains) = context.states.with(uid, |state| state.remains(uid)) else {
        return Ok(());
    };

    match delete(context, &remains).await {
        Ok(false) => {}
        Ok(true) => events::report_deleted(context, &remains).await,
        Err(failure) => return Err((remains, failure.of_orphan())),
    }

    Ok(())
}
