//! Steps for a classic load balancer.

use outrigger_aws::elb::{Attributes, HealthCheck, Listener, NewLoadBalancer, NewPolicy};
use outrigger_aws::{InstanceId, Tags};

use super::super::GroupRef;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create it with these groups.
    CreateLoadBalancer {
        new: NewLoadBalancer,
        groups: Vec<GroupRef>,
    },
    AttachSubnets(Vec<String>),
    DetachSubnets(Vec<String>),
    ApplyGroups(Vec<GroupRef>),
    AddTags(Tags),
    /// Remove the listeners of these ports.
    DeleteListeners(Vec<i32>),
    CreateListeners(Vec<Listener>),
    CreatePolicy(NewPolicy),
    /// Replace the policies of the backend on an instance port.
    SetBackendPolicies(i32, Vec<String>),
    /// Replace the policies of the listener on a port.
    SetListenerPolicies(i32, Vec<String>),
    ModifyAttributes(Attributes),
    ConfigureHealthCheck(HealthCheck),
    Register {
        instances: Vec<InstanceId>,
        /// Whether no other target stays, so that at least one has to be registered.
        needed: bool,
    },
    Deregister(Vec<InstanceId>),
    DeleteLoadBalancer,
}

impl Step {
    /// Whether it adds or removes targets.
    pub fn is_of_targets(&self) -> bool {
        matches!(self, Self::Register { .. } | Self::Deregister(_))
    }

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
