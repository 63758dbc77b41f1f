//! Updates only the targets of a Service whose spec is refused: an annotation is wrong, a subnet is missing, AWS
//! refuses a certificate. Without this the load balancer would lose its traffic when the last of its Nodes is replaced.
//! All else stays unchanged.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Kind as AwsKind;
use tokio::time::Instant;

use super::context::Context;
use super::error::{Environment, Error};
use super::execute::apply;
use super::execute::node_groups::{claim_as_is, plan_with_claims};
use super::inventory::Reader;
use super::observation::LoadBalancerIdentity;
use super::plan::targets::{self, candidates};
use super::plan::{Plan, PlanInput};
use super::spec::annotations::{Kind, node_labels};
use super::spec::names::uid;
use super::spec::{names, request};
use super::{events, inventory, observation, plan};

/// Calls that change targets. If AWS refuses these, there is nothing else to try.
const OF_TARGETS: [&str; 4] = [
    "RegisterInstancesWithLoadBalancer",
    "DeregisterInstancesFromLoadBalancer",
    "RegisterTargets",
    "DeregisterTargets",
];

/// True for errors that persist until someone changes something, so that targets must be updated meanwhile.
fn lasts(error: &Error) -> bool {
    match error {
        Error::Environment(Environment::ForeignLoadBalancer { .. }) => false,
        Error::Invalid(_) | Error::Environment(_) => true,
        Error::Aws(error) => {
            let passing = matches!(error.kind(), AwsKind::Throttled | AwsKind::Transport);
            // Updating targets needs fewer reads.
            let read = error.operation().starts_with("Describe") && !error.is_denied_action();
            !passing && !read && !OF_TARGETS.contains(&error.operation())
        }
        Error::Kubernetes { .. } | Error::NotLeader(_) => false,
        // Failures of deletions, which end without a change by a user.
        Error::TargetGroupInUse { .. } | Error::GroupInUse { .. } | Error::RulesDeferred { .. } => false,
    }
}

/// Updates the targets of a failed Service, if it has a load balancer. An error here is only logged: the failure itself
/// is reported and retried.
pub(super) async fn update_targets(context: &Context, service: &Service, failure: &Error) {
    let Some(kind) = request::kind_in_status(service) else {
        return claim_as_is(context, service);
    };
    if matches!(failure, Error::Environment(Environment::ForeignLoadBalancer { .. })) {
        return claim_as_is(context, service);
    }
    if !lasts(failure) {
        return;
    }

    let began = Instant::now();
    let done = try_update(context, service, kind, began).await;
    if let Err(error) = &done {
        let error = error.chain();
        tracing::warn!(error, "cannot update the targets of a Service whose sync failed");
    }

    let Ok((plan, all)) = done else {
        return context.node_sync.ended(began, false);
    };
    if plan.steps.is_empty() {
        return;
    }

    context.node_sync.ended(began, all);
    if all && !plan.targets.is_empty() {
        let message = "Updated load balancer with new hosts";
        events::emit(context, service, "UpdatedLoadBalancer", message).await;
    }
}

/// The executed plan, and whether AWS accepted all of it.
async fn try_update(context: &Context, service: &Service, kind: Kind, now: Instant) -> Result<(Plan, bool), Error> {
    let nodes = context.nodes.snapshot();
    let labels = node_labels(service);
    let candidates = candidates(&nodes, &labels);
    let gone = context.states.with(uid(service), |state| state.confirmed_gone(now));
    let seen_gone = &(&gone | &targets::excluded(&nodes));
    let name = names::load_balancer(uid(service));
    let reader = Reader::fresh(&context.aws);
    let since = reader.since();
    let (plan, identity) = if kind == Kind::Classic {
        let observed = &inventory::classic::observe_targets(&reader, &name, &context.settings, &candidates).await?;
        let registered = observed.load_balancer.as_ref().map(|lb| &lb.described.instances);
        let candidates = &observation::with_held(context, &candidates, registered, seen_gone);
        let plan = plan_with_claims(context, (&name, since), |claims| {
            Ok::<_, Error>(plan::classic::plan_targets(PlanInput {
                desired: (),
                settings: &context.settings,
                candidates,
                observed,
                seen_gone,
                claims,
            }))
        })?;
        let identity = observed.load_balancer.as_ref().map(LoadBalancerIdentity::classic);

        let without_tags = |identity| LoadBalancerIdentity { tags: None, ..identity };

        (plan, identity.map(without_tags))
    } else {
        let observed = &inventory::network::observe_targets(&reader, &name, &candidates).await?;
        let candidates = &observation::with_held(context, &candidates, Some(&observed.registered()), seen_gone);
        let plan = plan_with_claims(context, (&name, since), |claims| {
            Ok::<_, Error>(plan::network::plan_targets(PlanInput {
                desired: (),
                settings: &context.settings,
                candidates,
                observed,
                seen_gone,
                claims,
            }))
        })?;

        (plan, observed.load_balancer.as_ref().map(LoadBalancerIdentity::network))
    };

    observation::check_owner(context, service, identity.as_ref(), &plan).await?;
    let targets = context.states.share(plan.targets.clone());
    context.states.update(uid(service), |state| {
        state.targets = targets;
        // A loss from a full observation may be in target groups that are not observed here.
        state.note_gone(&plan.unconfirmed, &plan.targets, now);
    });

    let made = apply(context, service, &name, &plan).await?;
    events::report_refused(context, service, &made.refused).await;
    events::report_few_targets(context, service, &made.refused, None).await;

    Ok((plan, made.refused.is_empty()))
}
