//! The steps of a plan that are about a classic load balancer.

use outrigger_aws::elb::{Attributes, HealthCheck, Listener, NewLoadBalancer, NewPolicy};
use outrigger_aws::{InstanceId, Tags};

use super::super::GroupRef;

/// One write about the load balancer of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make it, with these groups.
    CreateLoadBalancer {
        /// All but its groups.
        new: NewLoadBalancer,
        /// Its groups.
        groups: Vec<GroupRef>,
    },
    /// Add subnets.
    AttachSubnets(Vec<String>),
    /// Take subnets away.
    DetachSubnets(Vec<String>),
    /// Replace the load balancer's groups.
    ApplyGroups(Vec<GroupRef>),
    /// Tag the load balancer.
    AddTags(Tags),
    /// Remove the listeners of these ports.
    DeleteListeners(Vec<i32>),
    /// Add listeners.
    CreateListeners(Vec<Listener>),
    /// Make a policy.
    CreatePolicy(NewPolicy),
    /// Replace the policies of the backend on an instance port.
    SetBackendPolicies(i32, Vec<String>),
    /// Replace the policies of the listener on a port.
    SetListenerPolicies(i32, Vec<String>),
    /// Set attributes.
    ModifyAttributes(Attributes),
    /// Set the health check.
    ConfigureHealthCheck(HealthCheck),
    /// Add targets.
    Register {
        /// Their instances.
        instances: Vec<InstanceId>,
        /// Whether no other target stays, so that at least one has to come through.
        needed: bool,
    },
    /// Take targets away.
    Deregister(Vec<InstanceId>),
    /// Delete the load balancer.
    DeleteLoadBalancer,
}

impl Step {
    /// Whether it adds or takes away targets.
    #[must_use]
    pub fn is_of_targets(&self) -> bool {
        matches!(self, Self::Register { .. } | Self::Deregister(_))
    }

    /// The AWS action behind the step.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateLoadBalancer { .. } => "CreateLoadBalancer",
            Self::AttachSubnets(_) => "AttachLoadBalancerToSubnets",
            Self::DetachSubnets(_) => "DetachLoadBalancerFromSubnets",
            Self::ApplyGroups(_) => "ApplySecurityGroupsToLoadBalancer",
            Self::AddTags(_) => "AddTags",
            Self::DeleteListeners(_) => "DeleteLoadBalancerListeners",
            Self::CreateListeners(_) => "CreateLoadBalancerListeners",
            Self::CreatePolicy(_) => "CreateLoadBalancerPolicy",
            Self::SetBackendPolicies(..) => "SetLoadBalancerPoliciesForBackendServer",
            Self::SetListenerPolicies(..) => "SetLoadBalancerPoliciesOfListener",
            Self::ModifyAttributes(_) => "ModifyLoadBalancerAttributes",
            Self::ConfigureHealthCheck(_) => "ConfigureHealthCheck",
            Self::Register { .. } => "RegisterInstancesWithLoadBalancer",
            Self::Deregister(_) => "DeregisterInstancesFromLoadBalancer",
            Self::DeleteLoadBalancer => "DeleteLoadBalancer",
        }
    }
}
