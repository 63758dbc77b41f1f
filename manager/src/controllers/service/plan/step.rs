//! The steps of a plan.

use std::fmt;

use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elb::{Attributes, HealthCheck, Listener, NewLoadBalancer, NewPolicy};
use outrigger_aws::{InstanceId, Tags};

/// A security group: one that is there, or the one that an earlier step of the same plan makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupRef {
    /// By its ID.
    Id(String),
    /// The result of [`Step::CreateGroup`].
    Created,
}

/// One write at AWS. All but the group's are about the load balancer of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the load balancer's own group.
    CreateGroup(NewSecurityGroup),
    /// Tag a group.
    TagGroup(String, Tags),
    /// Add ingress rules to a group.
    Authorize(GroupRef, Vec<IpPermission>),
    /// Take ingress rules from a group.
    Revoke(String, Vec<IpPermission>),
    /// Let a node's group take everything from the load balancer's.
    LetIn {
        /// The node's group.
        node_group: String,
        /// The load balancer's.
        from: GroupRef,
    },
    /// Make the load balancer, with these groups.
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
    Register(Vec<InstanceId>),
    /// Take targets away.
    Deregister(Vec<InstanceId>),
    /// Delete the load balancer.
    DeleteLoadBalancer,
    /// Delete a group.
    DeleteGroup(String),
}

/// A step and why it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What to do.
    pub step: Step,
    /// Why, for the log.
    pub reason: String,
}

impl Planned {
    /// A step with its reason.
    #[must_use]
    pub fn new(step: Step, reason: impl Into<String>) -> Self {
        Self {
            step,
            reason: reason.into(),
        }
    }
}

impl Step {
    /// The AWS action behind the step.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateGroup(_) => "CreateSecurityGroup",
            Self::TagGroup(..) => "CreateTags",
            Self::Authorize(..) | Self::LetIn { .. } => "AuthorizeSecurityGroupIngress",
            Self::Revoke(..) => "RevokeSecurityGroupIngress",
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
            Self::Register(_) => "RegisterInstancesWithLoadBalancer",
            Self::Deregister(_) => "DeregisterInstancesFromLoadBalancer",
            Self::DeleteLoadBalancer => "DeleteLoadBalancer",
            Self::DeleteGroup(_) => "DeleteSecurityGroup",
        }
    }
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Created => f.write_str("the new group"),
        }
    }
}
