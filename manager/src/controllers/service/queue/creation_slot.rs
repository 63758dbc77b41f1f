//! Whether a load balancer can be created now, or has to wait for AWS's limit.

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::super::action::Next;
use super::super::context::Context;
use super::super::events;
use super::super::plan::Plan;
use super::super::spec::desired::Desired;
use super::super::spec::names::uid;
use super::creation_queue::Slot;
use super::service_state::ServiceState;
use crate::events::EventType;

const ACTION: &str = "CreateLoadBalancer";

pub(crate) fn makes_one(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.creates_balancer())
}

/// When to reconcile again, if no load balancer can be created for this Service now. A long wait is reported.
pub(crate) async fn wait_for_creation(context: &Context, service: &Service, desired: &Desired) -> Option<Next> {
    let wait = |ahead| match desired {
        Desired::Classic(_) => context.aws.elb.expected_wait(ACTION, ahead),
        Desired::Network(_) => context.aws.elbv2.expected_wait(ACTION, ahead),
    };
    let slot = context
        .creation_queues
        .of(desired)
        .request(uid(service), wait, Instant::now());
    let Slot::Later { wait, ahead, report } = slot else {
        return None;
    };

    // If the load balancer was deleted by hand, the Service counted as settled and would rest until the next resync.
    context.states.update(uid(service), ServiceState::wait);
    if report {
        let message = format!(
            "Waiting to create load balancer: AWS limits how many an account may create (Services that \
             come first: {ahead}); expected in about {} s",
            wait.as_secs_f64().ceil()
        );
        events::emit(
            context,
            service,
            EventType::Normal,
            "WaitingToCreateLoadBalancer",
            &message,
        )
        .await;
    }

    Some(Next::After(wait))
}
