//! Releases Services after their deletion, also if AWS denies a part of it permanently. Then the load balancer is gone,
//! but a security group, rules or target groups are left, since the role may not delete them or something else uses
//! them. Otherwise the Service would keep its finalizer, and its namespace would never be deleted. v1.37.0 removes the
//! finalizer at the next try.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Kind;

use super::super::action::{Next, has_class};
use super::super::context::Context;
use super::super::error::Error;
use super::super::events::{self, During, Failure};
use super::super::patches;
use super::super::queue::service_state::{ServiceState, SpecFingerprint};
use super::super::spec::hostname;
use super::super::spec::names::{self, namespaced_name, uid};
use super::deletion::{self, delete};
use crate::events::EventType;

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
        Error::Aws(error) => error.kind() == Kind::AccessDenied && !error.operation().starts_with("Describe"),
        Error::Invalid(_) | Error::Environment(_) | Error::Kubernetes { .. } | Error::NotLeader(_) => false,
    }
}

/// Deletes the load balancers of a Service and removes the finalizer.
/// If a write fails, the finalizer stays.
pub(crate) async fn clean_up(context: &Context, service: &Service) -> Result<Next, Failure> {
    let (name, fingerprint) = (namespaced_name(service), SpecFingerprint::of(service));
    context.states.begin(uid(service), &name, fingerprint);
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

    let release = patches::release(service);
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
    let Ok(left) = deletion::plan_deletion(context, service).await else {
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
        "The load balancer is deleted, and the Service is released after {} minutes without the rest. Left at AWS, by the \
         action that would delete it: {}. Allow these actions, or end the other use, and delete it by hand or by \
         --load-balancer-sweep=delete: {}",
        RELEASE_AFTER.as_secs() / 60,
        steps.join(", "),
        failure.error.chain()
    );

    tracing::warn!(left = ?steps, "releasing a Service although AWS denies a part of its deletion");
    events::emit(
        context,
        service,
        EventType::Warning,
        "DeleteLoadBalancerIncomplete",
        &message,
    )
    .await;

    Ok(false)
}
