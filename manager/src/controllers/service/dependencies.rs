//! Which steps of a plan still make sense when AWS has denied an earlier one. Pure: no IO, no clock.
//!
//! A denied action stops no work that does not need it:
//!
//! - a step that only sets something, or only removes something, is missed by hardly any other;
//! - a step that removes something waits for the steps before it that open, make or fill what takes its place;
//! - a listener is led to a target group only if the group has been made and filled, and the way to it is open.

use super::plan::{GroupRef, GroupStep, Step};
use super::{classic, network};

impl Step {
    /// Whether this step must not be carried out, as an earlier step of the same plan was not: AWS would refuse it, or it would
    /// take away what serves until the earlier one is done.
    #[must_use]
    pub fn needs(&self, missing: &Self) -> bool {
        match missing {
            Self::Classic(step) => self.needs_classic(step),
            Self::Network(step) => self.needs_network(step),
            Self::Group(GroupStep::Tag(..)) => false,
            Self::Group(GroupStep::Create(_)) => self.names_created_group() || self.removes_something(),
            Self::Group(GroupStep::Authorize(..) | GroupStep::LetIn { .. }) => self.needs_open_ways(),
            // Rules that have lost their old descriptions let the same in.
            Self::Group(GroupStep::Revoke(..) | GroupStep::HandOver { .. } | GroupStep::Delete(_)) => false,
        }
    }

    fn needs_classic(&self, missing: &classic::Step) -> bool {
        use classic::Step as Classic;
        match missing {
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
            // AWS knows a backend, and takes policies for it, as soon as a listener uses it.
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
            Classic::ApplyGroups(_) => self.needs_open_ways(),
        }
    }

    fn needs_network(&self, missing: &network::Step) -> bool {
        use network::Step as Network;
        match missing {
            Network::CreateLoadBalancer { .. } | Network::DeleteLoadBalancer(_) => true,
            Network::ModifyAttributes(..)
            | Network::ModifyTargetGroupAttributes(..)
            | Network::ModifyTargetGroup(..)
            | Network::DeleteTargetGroup(_) => false,
            Network::SetSecurityGroups(..) => self.needs_open_ways(),
            Network::CreateTargetGroup(new) => {
                let created = network::TargetGroupRef::Created(new.name.clone());
                self.target_group() == Some(&created) || self.removes_something()
            }
            Network::ChangeTargets { group, .. } => {
                (self.leads() && self.target_group() == Some(group)) || self.removes_something()
            }
            Network::CreateListener { .. } | Network::ModifyListener { .. } => self.removes_something(),
            // AWS allows one listener for each port.
            Network::DeleteListener { port, .. } => match self {
                Self::Network(Network::CreateListener { listener, .. }) => listener.port == *port,
                _ => false,
            },
        }
    }

    /// Whether traffic would be cut off if it were carried out before what lets traffic in.
    fn needs_open_ways(&self) -> bool {
        self.removes_something() || matches!(self, Self::Network(network::Step::ModifyListener { .. }))
    }

    /// Whether something is gone afterwards.
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

    /// Whether a listener leads to a target group afterwards.
    fn leads(&self) -> bool {
        matches!(
            self,
            Self::Network(network::Step::CreateListener { .. } | network::Step::ModifyListener { .. })
        )
    }

    /// The target group that it names.
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

    /// Whether it names the security group that an earlier step of its plan makes.
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
