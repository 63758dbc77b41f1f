//! Deleting the load balancers of a Service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use tokio::sync::MutexGuard;

use super::super::context::Context;
use super::super::error::Error;
use super::super::events::{self, During, Failure};
use super::super::execute::{Executor, apply};
use super::super::inventory;
use super::super::plan;
use super::super::plan::Plan;
use super::super::plan::targets::candidates;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::names::{self, namespaced_name, uid};
use super::super::spec::owner::other_owner;

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
