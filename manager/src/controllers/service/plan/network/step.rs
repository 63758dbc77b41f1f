//! The writes about a network load balancer.

use outrigger_aws::Tags;
use outrigger_aws::elbv2::{
    Attributes, HealthCheckChange, ListenerSettings, NewNetworkLoadBalancer, NewTargetGroup, Target,
};

use super::super::GroupRef;

/// A load balancer: one that is there, or the one that an earlier step of the same plan makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalancerRef {
    /// By its ARN.
    Arn(String),
    /// The result of [`Step::CreateLoadBalancer`].
    Created,
}

/// A target group: one that is there, or one that an earlier step of the same plan makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetGroupRef {
    /// By its ARN.
    Arn(String),
    /// The result of the [`Step::CreateTargetGroup`] of this name.
    Created(String),
}

/// One write, or one kind of write to as many calls as it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the load balancer, with these groups.
    CreateLoadBalancer {
        /// All but its groups.
        new: NewNetworkLoadBalancer,
        /// Its groups.
        groups: Vec<GroupRef>,
    },
    /// Replace the load balancer's groups.
    SetSecurityGroups(String, Vec<GroupRef>),
    /// Set attributes of the load balancer.
    ModifyAttributes(BalancerRef, Attributes),
    /// Make a target group.
    CreateTargetGroup(NewTargetGroup),
    /// Set attributes of a target group.
    ModifyTargetGroupAttributes(TargetGroupRef, Attributes),
    /// Change a target group's health check.
    ModifyTargetGroup(String, HealthCheckChange),
    /// Change a target group's targets: first those that come, then those that go.
    ChangeTargets {
        /// The group.
        group: TargetGroupRef,
        /// To be added.
        add: Vec<Target>,
        /// To be taken away.
        remove: Vec<Target>,
        /// Whether no other target stays, so that at least one of `add` has to come through: nothing is led to a target
        /// group without targets.
        needed: bool,
    },
    /// Make a listener that forwards to a target group.
    CreateListener {
        /// The load balancer.
        balancer: BalancerRef,
        /// All but its target group.
        listener: ListenerSettings,
        /// The target group.
        group: TargetGroupRef,
        /// Its tags.
        tags: Tags,
    },
    /// Give a listener these settings.
    ModifyListener {
        /// The listener.
        arn: String,
        /// All but its target group.
        listener: ListenerSettings,
        /// The target group.
        group: TargetGroupRef,
        /// Whether the listener forwards to another target group now.
        moves: bool,
    },
    /// Delete a listener.
    DeleteListener {
        /// The listener.
        arn: String,
        /// The port that is free afterwards.
        port: i32,
    },
    /// Delete a target group.
    DeleteTargetGroup(String),
    /// Delete the load balancer and its listeners.
    DeleteLoadBalancer(String),
}

impl Step {
    /// The AWS action behind the step.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateLoadBalancer { .. } => "CreateLoadBalancer",
            Self::SetSecurityGroups(..) => "SetSecurityGroups",
            Self::ModifyAttributes(..) => "ModifyLoadBalancerAttributes",
            Self::CreateTargetGroup(_) => "CreateTargetGroup",
            Self::ModifyTargetGroupAttributes(..) => "ModifyTargetGroupAttributes",
            Self::ModifyTargetGroup(..) => "ModifyTargetGroup",
            Self::ChangeTargets { add, .. } if add.is_empty() => "DeregisterTargets",
            Self::ChangeTargets { .. } => "RegisterTargets",
            Self::CreateListener { .. } => "CreateListener",
            Self::ModifyListener { .. } => "ModifyListener",
            Self::DeleteListener { .. } => "DeleteListener",
            Self::DeleteTargetGroup(_) => "DeleteTargetGroup",
            Self::DeleteLoadBalancer(_) => "DeleteLoadBalancer",
        }
    }

    /// Whether it adds or takes away targets.
    #[must_use]
    pub fn is_of_targets(&self) -> bool {
        matches!(self, Self::ChangeTargets { .. })
    }
}
