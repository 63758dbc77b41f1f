//! Deletes the load balancers of a Service and releases it, also if AWS denies a part of the deletion permanently. Then
//! the load balancer is gone, but a security group, rules or target groups are left, since the role may not delete them
//! or something else uses them. Otherwise the Service would keep its finalizer, and its namespace would never be deleted.
//! v1.37.0 removes the finalizer at the next try.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Kind as AwsKind;
use tokio::sync::MutexGuard;

use super::super::action::{Next, has_class};
use super::super::context::Context;
use super::super::error::Error;
use super::super::events::{self, During, Failure};
use super::super::execute::{Executor, apply};
use super::super::plan::Plan;
use super::super::plan::targets::candidates;
use super::super::queue::service_state::ServiceState;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::hostname;
use super::super::spec::names::{self, namespaced_name, other_owner, uid};
use super::super::{inventory, plan, writer};

/// Deletes the AWS resources of a Service. Returns whether there were any.
pub(crate) async fn delete(context: &Context, service: &Service, _alone: &MutexGuard<'_, ()>) -> Result<bool, Failure> {
    if Annotations::of(service).kind() == Kind::External {
        return Ok(false);
    }

    // Leadership may have ended while this waited for the lock; then nothing is read either.
    context.permit.check().during(events::CHECK_BEFORE_CLEANUP)?;

    let name = names::load_balancer(uid(service));
    let plan = plan_deletion(context, service).await;
    let plan = plan.during(events::CHECK_BEFORE_CLEANUP)?;
    events::report_deletion(context, service, &plan).await;
    context.states.update(uid(service), |state| state.note_balancer(&plan));
    if !plan.steps.is_empty() {
        context.states.update(uid(service), |state| state.had_resources = true);
    }

    apply(&plan, &Executor::new(context, service, &name))
        .await
        .during(events::DELETE)?;

    Ok(!plan.steps.is_empty())
}

/// Plans the deletion of load balancers of both kinds: the annotation may have changed since the creation.
pub(crate) async fn plan_deletion(context: &Context, service: &Service) -> Result<Plan, Error> {
    let nodes = candidates(&context.nodes.snapshot(), &BTreeMap::new());
    let nodes = nodes.into_iter().map(|candidate| candidate.id).collect();
    let given = &context.states.of(uid(service)).given_names;
    let network = inventory::network::owned_resources(&context.aws, service, &context.settings, &nodes, given).await?;
    let mut plan = plan::network::plan_deletion(&network, &context.settings);
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

    plan.steps
        .extend(plan::classic::plan_deletion(&classic, &context.settings).steps);

    Ok(plan)
}

/// Time from the request of the deletion to the removal of the finalizer. The `deletionTimestamp` outlives a change of
/// leaders.
const RELEASE_AFTER: Duration = Duration::from_secs(1800);

/// Time for which this process has observed that the load balancer is gone. AWS releases its network interfaces, and
/// with them its security group, some minutes later; v1.37.0 waits up to 10 minutes for that:
/// <https://github.com/kubernetes/cloud-provider-aws/blob/v1.37.0/pkg/providers/v1/aws_loadbalancer.go>.
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
        Error::Invalid(_) | Error::Environment(_) | Error::Kubernetes { .. } | Error::NotLeader(_) => false,
    }
}

/// Deletes the load balancers of a Service and removes the finalizer.
/// If a write fails, the finalizer stays.
pub(crate) async fn clean_up(context: &Context, service: &Service) -> Result<Next, Failure> {
    context.states.begin(service);
    context.creation_queues.done(uid(service));

    let complete = {
        let alone = context.deleting.lock().await;
        match delete(context, service, &alone).await {
            Ok(_) => true,
            Err(failure) => end_denied_deletion(context, service, failure).await?,
        }
    };
    let had_resources =
        context.states.of(uid(service)).had_resources || hostname::is_of(service, &names::load_balancer(uid(service)));
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
    }

    context.states.forget(uid(service));

    Ok(Next::OnChange)
}

/// Ends a deletion that AWS denies for good, with an Event that names what is left at AWS. Returns whether nothing is
/// left.
/// Returns the failure itself, if the deletion has to be retried.
pub(crate) async fn end_denied_deletion(
    context: &Context,
    service: &Service,
    failure: Failure,
) -> Result<bool, Failure> {
    let state = context.states.of(uid(service));
    if !lasts(&failure.error) || !is_due(service, &state, Timestamp::now()) {
        return Err(failure);
    }
    let Ok(left) = plan_deletion(context, service).await else {
        return Err(failure);
    };
    if left.steps.iter().any(|planned| planned.step.deletes_balancer()) {
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
