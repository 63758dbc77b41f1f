//! The steps of plans, what they refer to, and which of them depend on an earlier one that AWS has denied.

use outrigger_aws::ec2::{IpPermission, NewSecurityGroup, SecurityGroup};
use outrigger_aws::elb::{self, HealthCheck, Listener, NewLoadBalancer, NewPolicy};
use outrigger_aws::elbv2::{
    Attributes, HealthCheckChange, ListenerSettings, NewNetworkLoadBalancer, NewTargetGroup, Target,
};
use outrigger_aws::{InstanceId, Tags};

use super::super::spec::names;
use super::claims::Change;

/// An existing security group, or the one that an earlier step of the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupRef {
    Id(String),
    /// The result of [`GroupStep::Create`].
    Created,
}

impl GroupRef {
    /// The group that exists, or the one that is created because none does.
    pub fn of(existing: Option<&SecurityGroup>) -> Self {
        existing.map_or(Self::Created, |group| Self::Id(group.id.clone()))
    }
}

/// One write to AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Group(GroupStep),
    Classic(ClassicStep),
    Network(NetworkStep),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupStep {
    Create(NewSecurityGroup),
    Tag(String, Tags),
    Authorize(GroupRef, Vec<IpPermission>),
    Revoke(String, Vec<IpPermission>),
    /// Add rules that a load balancer needs to a group of Nodes.
    Widen(String, Vec<IpPermission>),
    /// Revoke rules of a group of Nodes that no load balancer needs, and describe others by a load balancer that does.
    Narrow(String, Change),
    /// Allow all traffic from the load balancer's group to a Node's group.
    LetIn {
        node_group: String,
        from: GroupRef,
    },
    Delete(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub step: Step,
    /// For the log.
    pub reason: String,
}

impl Planned {
    pub fn new(step: impl Into<Step>, reason: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            reason: reason.into(),
        }
    }
}

impl From<GroupStep> for Step {
    fn from(step: GroupStep) -> Self {
        Self::Group(step)
    }
}

impl From<ClassicStep> for Step {
    fn from(step: ClassicStep) -> Self {
        Self::Classic(step)
    }
}

impl From<NetworkStep> for Step {
    fn from(step: NetworkStep) -> Self {
        Self::Network(step)
    }
}

impl Step {
    pub fn action(&self) -> &'static str {
        match self {
            Self::Group(step) => step.action(),
            Self::Classic(step) => step.action(),
            Self::Network(step) => step.action(),
        }
    }

    /// The action that removes a resource, and that resource, for messages.
    pub fn removes(&self) -> String {
        match self {
            Self::Group(GroupStep::Revoke(id, _) | GroupStep::Narrow(id, _)) => {
                format!("RevokeSecurityGroupIngress {id}")
            }
            Self::Group(GroupStep::Delete(id)) | Self::Network(NetworkStep::DeleteTargetGroup(id)) => {
                format!("{} {id}", self.action())
            }
            other => other.action().to_owned(),
        }
    }

    pub fn creates_balancer(&self) -> bool {
        matches!(
            self,
            Self::Classic(ClassicStep::CreateLoadBalancer { .. })
                | Self::Network(NetworkStep::CreateLoadBalancer { .. })
        )
    }

    pub fn deletes_balancer(&self) -> bool {
        matches!(
            self,
            Self::Classic(ClassicStep::DeleteLoadBalancer) | Self::Network(NetworkStep::DeleteLoadBalancer(_))
        )
    }

    /// The existing security group to which it adds rules.
    pub fn opened_group(&self) -> Option<&str> {
        match self {
            Self::Group(
                GroupStep::Authorize(GroupRef::Id(group), _)
                | GroupStep::Widen(group, _)
                | GroupStep::LetIn { node_group: group, .. },
            ) => Some(group),
            _ => None,
        }
    }

    /// Whether it adds or removes targets.
    pub fn is_of_targets(&self) -> bool {
        matches!(
            self,
            Self::Classic(ClassicStep::Register { .. } | ClassicStep::Deregister(_))
                | Self::Network(NetworkStep::ChangeTargets { .. })
        )
    }
}

impl GroupStep {
    pub fn action(&self) -> &'static str {
        match self {
            Self::Create(_) => "CreateSecurityGroup",
            Self::Tag(..) => "CreateTags",
            Self::Authorize(..) | Self::LetIn { .. } | Self::Widen(..) => "AuthorizeSecurityGroupIngress",
            Self::Narrow(_, change) if change.revoke.is_empty() => "UpdateSecurityGroupRuleDescriptionsIngress",
            Self::Revoke(..) | Self::Narrow(..) => "RevokeSecurityGroupIngress",
            Self::Delete(_) => "DeleteSecurityGroup",
        }
    }
}

/// A listener with all that is needed to create it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerListener {
    pub listener: Listener,
    pub policies: Vec<String>,
    /// The policies of the backend on its instance port.
    pub backend_policies: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassicStep {
    CreateLoadBalancer {
        new: NewLoadBalancer,
        groups: Vec<GroupRef>,
    },
    AttachSubnets(Vec<String>),
    DetachSubnets(Vec<String>),
    ApplyGroups(Vec<GroupRef>),
    AddTags(Tags),
    DeleteListeners(Vec<i32>),
    CreateListeners(Vec<Listener>),
    /// Change nothing but a listener's certificate.
    SetCertificate {
        listener: FormerListener,
        certificate: String,
    },
    /// Delete listeners and create others, some of them on the same ports. It is one step, so that the old ones are
    /// created again if AWS refuses the new ones.
    ReplaceListeners {
        old: Vec<FormerListener>,
        new: Vec<Listener>,
    },
    CreatePolicy(NewPolicy),
    /// Replace the policies of the backend on an instance port.
    SetBackendPolicies(i32, Vec<String>),
    /// Replace the policies of the listener on a port.
    SetListenerPolicies(i32, Vec<String>),
    ModifyAttributes(elb::Attributes),
    ConfigureHealthCheck(HealthCheck),
    Register {
        instances: Vec<InstanceId>,
        /// Whether no other target stays, so that at least one has to be registered.
        needed: bool,
    },
    Deregister(Vec<InstanceId>),
    DeleteLoadBalancer,
}

impl ClassicStep {
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateLoadBalancer { .. } => "CreateLoadBalancer",
            Self::AttachSubnets(_) => "AttachLoadBalancerToSubnets",
            Self::DetachSubnets(_) => "DetachLoadBalancerFromSubnets",
            Self::ApplyGroups(_) => "ApplySecurityGroupsToLoadBalancer",
            Self::AddTags(_) => "AddTags",
            Self::DeleteListeners(_) => "DeleteLoadBalancerListeners",
            Self::CreateListeners(_) | Self::ReplaceListeners { .. } => "CreateLoadBalancerListeners",
            Self::SetCertificate { .. } => "SetLoadBalancerListenerSSLCertificate",
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

/// An existing load balancer, or the one that an earlier step of the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalancerRef {
    Arn(String),
    /// The result of [`NetworkStep::CreateLoadBalancer`].
    Created,
}

/// An existing target group, or one that an earlier step of the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetGroupRef {
    Arn(String),
    /// The result of the [`NetworkStep::CreateTargetGroup`] of this name.
    Created(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkStep {
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
    CreateListener {
        balancer: BalancerRef,
        listener: ListenerSettings,
        group: TargetGroupRef,
        tags: Tags,
    },
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
    DeleteLoadBalancer(String),
}

impl NetworkStep {
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
}

// A denied action stops only the work that depends on it:
//
// - nothing is removed before its replacement serves: a listener's new target group, the rules that it needs, other targets;
// - a listener forwards to another target group only after the group has been created, filled and set up, and its rules have been
//   added;
// - no step is tried that AWS would refuse, because it names something that was not created or not deleted.

impl Step {
    /// Whether this step must be omitted because an earlier step of the same plan was omitted: AWS would refuse it, or
    /// traffic would be interrupted.
    pub fn depends_on(&self, omitted: &Self) -> bool {
        match omitted {
            Self::Group(step) => self.depends_on_group(step),
            Self::Classic(step) => self.depends_on_classic(step),
            Self::Network(step) => self.depends_on_network(step),
        }
    }

    fn depends_on_group(&self, omitted: &GroupStep) -> bool {
        match omitted {
            GroupStep::Create(_) => self.names_created_group(),
            GroupStep::Authorize(GroupRef::Id(id), _)
            | GroupStep::Widen(id, _)
            | GroupStep::LetIn { node_group: id, .. } => match self {
                Self::Group(GroupStep::Revoke(group, _) | GroupStep::Narrow(group, _)) => group == id,
                Self::Classic(ClassicStep::DeleteListeners(_) | ClassicStep::ReplaceListeners { .. }) => true,
                _ => self.moves_listener() || self.moves_clients(omitted),
            },
            GroupStep::Authorize(GroupRef::Created, _) => self.moves_listener() || self.moves_clients(omitted),
            GroupStep::Tag(..) | GroupStep::Revoke(..) | GroupStep::Narrow(..) | GroupStep::Delete(_) => false,
        }
    }

    /// Whether the step gives the load balancer security groups for which these rules are needed.
    fn moves_clients(&self, omitted: &GroupStep) -> bool {
        let (Self::Classic(ClassicStep::ApplyGroups(groups))
        | Self::Network(NetworkStep::SetSecurityGroups(_, groups))) = self
        else {
            return false;
        };
        match omitted {
            GroupStep::Authorize(opened, _) => groups.contains(opened),
            GroupStep::LetIn { from, .. } => groups.contains(from),
            GroupStep::Widen(_, rules) => {
                let mut sources = rules.iter().flat_map(|rule| &rule.groups);
                sources.any(|pair| {
                    pair.group_id
                        .clone()
                        .is_some_and(|id| groups.contains(&GroupRef::Id(id)))
                })
            }
            _ => false,
        }
    }

    fn depends_on_classic(&self, omitted: &ClassicStep) -> bool {
        use ClassicStep as Classic;
        match (omitted, self) {
            (Classic::CreateLoadBalancer { .. }, _) => true,
            (Classic::DeleteLoadBalancer, _) => !matches!(self, Self::Network(_)),
            (
                Classic::CreatePolicy(policy),
                Self::Classic(Classic::SetBackendPolicies(_, names) | Classic::SetListenerPolicies(_, names)),
            ) => names.contains(&policy.name),
            // AWS accepts policies only for the ports of listeners that exist, and of their backends:
            // https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_SetLoadBalancerPoliciesOfListener.html
            (
                Classic::CreateListeners(new) | Classic::ReplaceListeners { new, .. },
                Self::Classic(Classic::SetBackendPolicies(port, _)),
            ) => new.iter().any(|listener| listener.instance_port == *port),
            (
                Classic::CreateListeners(new) | Classic::ReplaceListeners { new, .. },
                Self::Classic(Classic::SetListenerPolicies(port, _)),
            ) => new.iter().any(|listener| listener.port == *port),
            // AWS allows one subnet for each zone.
            (Classic::AttachSubnets(_), Self::Classic(Classic::DetachSubnets(_)))
            | (Classic::DetachSubnets(_), Self::Classic(Classic::AttachSubnets(_)))
            | (Classic::Register { .. }, Self::Classic(Classic::Deregister(_))) => true,
            (Classic::Register { .. } | Classic::Deregister(_) | Classic::ApplyGroups(_), _) => self.closes(),
            _ => false,
        }
    }

    fn depends_on_network(&self, omitted: &NetworkStep) -> bool {
        use NetworkStep as Network;
        match omitted {
            Network::CreateLoadBalancer { .. } => true,
            Network::DeleteLoadBalancer(_) => !matches!(self, Self::Classic(_)),
            Network::ModifyAttributes(..) => false,
            Network::SetSecurityGroups(..) => self.closes(),
            Network::CreateTargetGroup(new) => self.target_group() == Some(&TargetGroupRef::Created(new.name.clone())),
            Network::ModifyTargetGroupAttributes(group, _) => {
                self.moves_listener() && self.target_group() == Some(group)
            }
            // The old port is still checked.
            Network::ModifyTargetGroup(_, HealthCheckChange { port, .. }) => port.is_some() && self.closes(),
            Network::ChangeTargets { group, add, .. } => {
                let is_filled = add.is_empty();
                self.closes() || (!is_filled && self.forwards() && self.target_group() == Some(group))
            }
            // The old listener serves instead.
            Network::CreateListener { .. } => matches!(self, Self::Network(Network::DeleteListener { .. })),
            Network::ModifyListener { moves, .. } => *moves && (self.closes() || self.deletes_target_group()),
            // AWS allows one listener for each port, and deletes no target group that a listener uses.
            Network::DeleteListener { port, .. } => match self {
                Self::Network(Network::CreateListener { listener, .. }) => listener.port == *port,
                _ => self.closes() || self.deletes_target_group(),
            },
            // AWS allows one target group of a name.
            Network::DeleteTargetGroup(arn) => match self {
                Self::Network(Network::CreateTargetGroup(new)) => names::target_group_of(arn) == Some(&new.name),
                _ => false,
            },
        }
    }

    /// Whether the step removes rules or security groups.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Group(GroupStep::Revoke(..) | GroupStep::Narrow(..) | GroupStep::Delete(_))
        )
    }

    fn deletes_target_group(&self) -> bool {
        matches!(self, Self::Network(NetworkStep::DeleteTargetGroup(_)))
    }

    /// Whether an existing listener forwards to another target group afterwards.
    fn moves_listener(&self) -> bool {
        matches!(self, Self::Network(NetworkStep::ModifyListener { moves: true, .. }))
    }

    /// Whether a listener that was new or forwarded elsewhere forwards to a target group afterwards.
    fn forwards(&self) -> bool {
        self.moves_listener() || matches!(self, Self::Network(NetworkStep::CreateListener { .. }))
    }

    fn target_group(&self) -> Option<&TargetGroupRef> {
        match self {
            Self::Network(
                NetworkStep::ModifyTargetGroupAttributes(group, _)
                | NetworkStep::ChangeTargets { group, .. }
                | NetworkStep::CreateListener { group, .. }
                | NetworkStep::ModifyListener { group, .. },
            ) => Some(group),
            _ => None,
        }
    }

    /// Whether the step names the security group that an earlier step of its plan creates.
    fn names_created_group(&self) -> bool {
        match self {
            Self::Group(GroupStep::Authorize(group, _) | GroupStep::LetIn { from: group, .. }) => {
                *group == GroupRef::Created
            }
            Self::Classic(ClassicStep::CreateLoadBalancer { groups, .. } | ClassicStep::ApplyGroups(groups))
            | Self::Network(
                NetworkStep::CreateLoadBalancer { groups, .. } | NetworkStep::SetSecurityGroups(_, groups),
            ) => groups.contains(&GroupRef::Created),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
