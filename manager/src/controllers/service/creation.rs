//! Whether a load balancer can be made for a Service now, or AWS's limit makes it wait.

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::desired::Desired;
use super::line::{Line, Turn};
use super::memory::Memory;
use super::plan::{Plan, Step};
use super::sync::{Next, Reconciler, uid};
use crate::events::EventType;

const ACTION: &str = "CreateLoadBalancer";

/// A line for each of AWS's limits.
#[derive(Debug, Default)]
pub struct Lines {
    classic: Line,
    network: Line,
}

impl Lines {
    fn of(&self, desired: &Desired) -> &Line {
        match desired {
            Desired::Classic(_) => &self.classic,
            Desired::Network(_) => &self.network,
        }
    }

    /// Whether a Service stands in one of them.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.classic.has(uid) || self.network.has(uid)
    }

    /// Ends the turn and the waiting of a Service.
    pub(super) fn done(&self, uid: &str) {
        self.classic.done(uid);
        self.network.done(uid);
    }
}

/// Whether a plan makes a load balancer.
pub(super) fn makes_one(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| is_creation(&planned.step))
}

/// Whether a step does.
pub(super) fn is_creation(step: &Step) -> bool {
    step.action() == ACTION
}

impl Reconciler {
    /// When to come again, if a load balancer cannot be made for this Service now. A long wait is told.
    pub(super) async fn wait_in_line(&self, service: &Service, desired: &Desired) -> Option<Next> {
        let wait = |ahead| match desired {
            Desired::Classic(_) => self.aws.elb.expected_wait(ACTION, ahead),
            Desired::Network(_) => self.aws.elbv2.expected_wait(ACTION, ahead),
        };
        let turn = self.lines.of(desired).ask(uid(service), wait, Instant::now());
        let Turn::Later { wait, ahead, tell } = turn else {
            return None;
        };
        // One that is to be made again was settled before; without this the Service would rest until the next resync.
        self.memories.update(uid(service), Memory::wait);
        if tell {
            let message = format!(
                "Waiting to create load balancer: AWS limits how many an account may create (Services that \
                 come first: {ahead}); expected in about {} s",
                wait.as_secs_f64().ceil()
            );
            self.event(service, EventType::Normal, "WaitingToCreateLoadBalancer", &message)
                .await;
        }
        Some(Next::After(wait))
    }
}
