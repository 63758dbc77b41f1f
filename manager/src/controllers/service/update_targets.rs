//! Load balancers whose Services cannot have what they ask for: an annotation is wrong, a subnet is missing, AWS refuses a
//! certificate. Nothing of that is a reason to lose the traffic that they have, which they would with the last of today's
//! Nodes. So their targets follow the Nodes, and all else stays as it is.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Kind as AwsKind;
use tokio::time::Instant;

use super::context::Context;
use super::error::{Environment, Error};
use super::execute::{Executor, apply};
use super::inventory::Reader;
use super::ownership::LoadBalancerIdentity;
use super::plan::Plan;
use super::plan::targets::{self, candidates};
use super::spec::annotations::{Annotations, Kind};
use super::spec::names::uid;
use super::spec::{hostname, names};
use super::{events, inventory, observation, ownership, plan};
use crate::events::EventType;

/// Calls that change targets: where AWS refuses these, there is nothing more to try.
const OF_TARGETS: [&str; 4] = [
    "RegisterInstancesWithLoadBalancer",
    "DeregisterInstancesFromLoadBalancer",
    "RegisterTargets",
    "DeregisterTargets",
];

/// Whether what failed fails again until someone changes something, so that the targets cannot wait for it.
fn lasts(error: &Error) -> bool {
    match error {
        Error::Environment(Environment::ForeignLoadBalancer { .. }) => false,
        Error::Invalid(_) | Error::Environment(_) => true,
        Error::Aws(error) => {
            let passing = matches!(error.kind(), AwsKind::Throttled | AwsKind::Transport);
            // The targets need fewer reads than the whole.
            let read = error.operation().starts_with("Describe") && !error.is_denied_action();
            !passing && !read && !OF_TARGETS.contains(&error.operation())
        }
        Error::Kubernetes { .. } | Error::NotLeader(_) => false,
        // Found when everything else is done.
        Error::TargetGroupInUse { .. } | Error::GroupInUse { .. } => false,
    }
}

/// Lets the targets of a Service that failed so follow the Nodes, if it has a load balancer. What goes wrong here is logged
/// only: the failure itself is told, and leads to the next try.
pub(super) async fn update_targets(context: &Context, service: &Service, failure: &Error) {
    let Some(kind) = hostname::kind_in_status(service).filter(|_| lasts(failure)) else {
        return;
    };
    let began = Instant::now();
    let done = try_update(context, service, kind, began).await;
    if let Err(error) = &done {
        let error = error.chain();
        tracing::warn!(
            error,
            "the targets of a Service that has failed do not follow the nodes"
        );
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
        events::emit(context, service, EventType::Normal, "UpdatedLoadBalancer", message).await;
    }
}

/// What was done, and whether AWS took all of it.
async fn try_update(context: &Context, service: &Service, kind: Kind, now: Instant) -> Result<(Plan, bool), Error> {
    let nodes = context.nodes.snapshot();
    let labels = Annotations::of(service).pairs("target-node-labels");
    let candidates = candidates(&nodes, &labels);
    let gone = context.states.of(uid(service)).confirmed_gone(now);
    let seen_gone = &(&gone | &targets::excluded(&nodes));
    let name = names::load_balancer(uid(service));
    let reader = Reader::fresh(&context.aws);
    let (plan, identity) = if kind == Kind::Classic {
        let observed = &inventory::classic::observe_targets(&reader, &name, &context.settings, &candidates).await?;
        let registered = observed.load_balancer.as_ref().map(|lb| &lb.described.instances);
        let plan = plan::classic::plan_targets(plan::classic::TargetsInput {
            settings: &context.settings,
            candidates: &observation::with_held(context, &candidates, registered, seen_gone),
            observed,
            seen_gone,
        });
        let identity = observed.load_balancer.as_ref().map(LoadBalancerIdentity::classic);
        (plan, identity.map(LoadBalancerIdentity::without_tags))
    } else {
        let observed = &inventory::network::observe_targets(&reader, &name, &candidates).await?;
        let plan = plan::network::plan_targets(plan::network::TargetsInput {
            settings: &context.settings,
            candidates: &observation::with_held(context, &candidates, Some(&observed.registered()), seen_gone),
            observed,
            seen_gone,
        });
        (plan, observed.load_balancer.as_ref().map(LoadBalancerIdentity::network))
    };
    ownership::check_owner(context, service, identity.as_ref(), &plan).await?;
    context.states.update(uid(service), |state| {
        // What a look at the whole has found gone may stand in groups that are not looked at here.
        state.note_gone(&plan.unconfirmed, &plan.targets, now);
        state.targets.clone_from(&plan.targets);
    });
    let made = apply(&plan, &Executor::new(context, service, &name)).await?;
    events::report_refused(context, service, &made.refused).await;
    Ok((plan, made.refused.is_empty()))
}
