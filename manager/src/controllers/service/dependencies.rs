//! Which steps of a plan depend on an earlier one that AWS has denied. Pure: no IO, no clock.
//!
//! A denied action stops only the work that depends on it:
//!
//! - hardly any step depends on one that only sets or only removes something;
//! - a step that removes something depends on the steps before it that create its replacement, fill it, or let traffic reach it;
//! - a listener forwards to a target group only after the group has been created and filled, and its rules have been added.

use super::plan::{GroupRef, GroupStep, Step};
use super::{classic, network};

impl Step {
    /// Whether this step must be left out because an earlier step of the same plan was: AWS would refuse it, or traffic would be
    /// cut off.
    #[must_use]
    pub fn depends_on(&self, omitted: &Self) -> bool {
        match omitted {
            Self::Classic(step) => self.depends_on_classic(step),
            Self::Network(step) => self.depends_on_network(step),
            Self::Group(GroupStep::Tag(..)) => false,
            Self::Group(GroupStep::Create(_)) => self.names_created_group() || self.removes_something(),
            Self::Group(GroupStep::Authorize(..) | GroupStep::LetIn { .. }) => self.depends_on_access(),
            // A rule with its old description allows the same traffic.
            Self::Group(GroupStep::Revoke(..) | GroupStep::HandOver { .. } | GroupStep::Delete(_)) => false,
        }
    }

    fn depends_on_classic(&self, omitted: &classic::Step) -> bool {
        use classic::Step as Classic;
        match omitted {
            Classic::CreateLoadBalancer { .. } | Classic::DeleteLoadBalancer => true,
            Classic::AddTags(_)
            | Classic::SetBackendPolicies(..)
            | Classic::SetListenerPolicies(..)
            | Classic::ModifyAttributes(_)
            | Classic::ConfigureHealthCheck(_)
            | Classic::DetachSubnets(_)
            | Classic::Deregister(_) => false,
            Classic::CreatePolicy(policy) => match self {
                Self::Classic(Classic::SetBackendPolicies(_, names) | Classic::SetListenerPolicies(_, names)) => {
                    names.contains(&policy.name)
                }
                _ => false,
            },
            Classic::DeleteListeners(ports) => match self {
                Self::Classic(Classic::CreateListeners(listeners)) => {
                    listeners.iter().any(|listener| ports.contains(&listener.port))
                }
                _ => false,
            },
            // AWS accepts policies only for the ports of listeners that exist, and of their backends.
            Classic::CreateListeners(listeners) => match self {
                Self::Classic(Classic::SetBackendPolicies(port, _)) => {
                    listeners.iter().any(|listener| listener.instance_port == *port)
                }
                Self::Classic(Classic::SetListenerPolicies(port, _)) => {
                    listeners.iter().any(|listener| listener.port == *port)
                }
                _ => self.removes_something(),
            },
            Classic::AttachSubnets(_) | Classic::Register { .. } => self.removes_something(),
            Classic::ApplyGroups(_) => self.depends_on_access(),
        }
    }

    fn depends_on_network(&self, omitted: &network::Step) -> bool {
        use network::Step as Network;
        match omitted {
            Network::CreateLoadBalancer { .. } | Network::DeleteLoadBalancer(_) => true,
            Network::ModifyAttributes(..)
            | Network::ModifyTargetGroupAttributes(..)
            | Network::ModifyTargetGroup(..)
            | Network::DeleteTargetGroup(_) => false,
            Network::SetSecurityGroups(..) => self.depends_on_access(),
            Network::CreateTargetGroup(new) => {
                let created = network::TargetGroupRef::Created(new.name.clone());
                self.target_group() == Some(&created) || self.removes_something()
            }
            Network::ChangeTargets { group, .. } => {
                (self.forwards() && self.target_group() == Some(group)) || self.removes_something()
            }
            Network::CreateListener { .. } | Network::ModifyListener { .. } => self.removes_something(),
            // AWS allows one listener for each port.
            Network::DeleteListener { port, .. } => match self {
                Self::Network(Network::CreateListener { listener, .. }) => listener.port == *port,
                _ => false,
            },
        }
    }

    /// Whether traffic would be cut off if this step came before the rules and groups that allow it.
    fn depends_on_access(&self) -> bool {
        self.removes_something() || matches!(self, Self::Network(network::Step::ModifyListener { .. }))
    }

    /// Whether the step removes something.
    fn removes_something(&self) -> bool {
        match self {
            Self::Group(step) => matches!(
                step,
                GroupStep::Revoke(..) | GroupStep::HandOver { .. } | GroupStep::Delete(_)
            ),
            Self::Classic(step) => matches!(
                step,
                classic::Step::DetachSubnets(_)
                    | classic::Step::DeleteListeners(_)
                    | classic::Step::Deregister(_)
                    | classic::Step::DeleteLoadBalancer
            ),
            Self::Network(step) => match step {
                network::Step::ChangeTargets { add, .. } => add.is_empty(),
                network::Step::DeleteListener { .. }
                | network::Step::DeleteTargetGroup(_)
                | network::Step::DeleteLoadBalancer(_) => true,
                _ => false,
            },
        }
    }

    /// Whether the step makes a listener forward to a target group.
    fn forwards(&self) -> bool {
        matches!(
            self,
            Self::Network(network::Step::CreateListener { .. } | network::Step::ModifyListener { .. })
        )
    }

    /// The target group that the step names.
    fn target_group(&self) -> Option<&network::TargetGroupRef> {
        match self {
            Self::Network(
                network::Step::ModifyTargetGroupAttributes(group, _)
                | network::Step::ChangeTargets { group, .. }
                | network::Step::CreateListener { group, .. }
                | network::Step::ModifyListener { group, .. },
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
            Self::Classic(classic::Step::CreateLoadBalancer { groups, .. } | classic::Step::ApplyGroups(groups))
            | Self::Network(
                network::Step::CreateLoadBalancer { groups, .. } | network::Step::SetSecurityGroups(_, groups),
            ) => groups.contains(&GroupRef::Created),
            _ => false,
        }
    }
}
