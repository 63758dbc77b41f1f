//! Steps for a network load balancer.

use outrigger_aws::Tags;
use outrigger_aws::elbv2::{
    Attributes, HealthCheckChange, ListenerSettings, NewNetworkLoadBalancer, NewTargetGroup, Target,
};

use super::super::GroupRef;

/// An existing load balancer, or the one that an earlier step of the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalancerRef {
    Arn(String),
    /// The result of [`Step::CreateLoadBalancer`].
    Created,
}

/// An existing target group, or one that an earlier step of the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetGroupRef {
    Arn(String),
    /// The result of the [`Step::CreateTargetGroup`] of this name.
    Created(String),
}

/// One write, or one kind of write in several calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create the load balancer with these groups.
    CreateLoadBalancer {
        new: NewNetworkLoadBalancer,
        groups: Vec<GroupRef>,
    },
    SetSecurityGroups(String, Vec<GroupRef>),
    ModifyAttributes(BalancerRef, Attributes),
    CreateTargetGroup(NewTargetGroup),
    ModifyTargetGroupAttributes(TargetGroupRef, Attributes),
    ModifyTargetGroup(String, HealthCheckChange),
    /// Change a target group's targets: first added, then removed ones.
    ChangeTargets {
        group: TargetGroupRef,
        add: Vec<Target>,
        remove: Vec<Target>,
        /// Whether no other target stays, so that at least one of `add` has to be registered: no listener forwards to
        /// an empty target group.
        needed: bool,
    },
    /// Create a listener that forwards to a target group.
    CreateListener {
        balancer: BalancerRef,
        listener: ListenerSettings,
        group: TargetGroupRef,
        tags: Tags,
    },
    /// Change the settings of a listener.
    ModifyListener {
        arn: String,
        listener: ListenerSettings,
        group: TargetGroupRef,
        /// Whether the listener forwarded to another target group before.
        moves: bool,
    },
    DeleteListener {
        arn: String,
        port: i32,
    },
    DeleteTargetGroup(String),
    /// Delete the load balancer and its listeners.
    DeleteLoadBalancer(String),
}

impl Step {
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

    /// Whether it adds or removes targets.
    pub fn is_of_targets(&self) -> bool {
        matches!(self, Self::ChangeTargets { .. })
    }
}
