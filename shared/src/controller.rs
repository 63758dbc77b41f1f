//! The cloud controllers and every name each of them ever had.
//!
//! The names changed between releases: kube-controller-manager up to 1.27 says `service`, cloud-controller-managers
//! from 0.28 on say `service-lb-controller`, and the built-in leader migration list of those same releases says
//! `service-controller`. Upstream compares these strings exactly, so a list written for one side protects nothing on
//! the other. Here all spellings are one identity.

use std::fmt;

use crate::version::KubernetesVersion;

/// A control loop that may run in a cloud-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Initializes Nodes. Never part of kube-controller-manager (the kubelet did this work).
    Node,
    /// Deletes or taints Nodes whose instance is gone or shut down.
    NodeLifecycle,
    /// Load balancers of Services.
    Service,
    /// Routes between Nodes' Pod ranges.
    Route,
    /// Pod ranges of Nodes.
    NodeIpam,
    /// Tags of instances; AWS only, off by default.
    Tagging,
}

impl Controller {
    pub const ALL: [Self; 6] = [
        Self::Node,
        Self::NodeLifecycle,
        Self::Service,
        Self::Route,
        Self::NodeIpam,
        Self::Tagging,
    ];

    /// The controllers that an in-tree kube-controller-manager runs too, so that exactly one side may own them.
    pub const SHARED: [Self; 3] = [Self::Service, Self::Route, Self::NodeLifecycle];

    /// The name that the newest releases register.
    #[must_use]
    pub const fn canonical_name(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
            Self::NodeIpam => "node-ipam-controller",
            Self::Tagging => "tagging-controller",
        }
    }

    /// The name that a kube-controller-manager of that version registers; none for a controller that it does not have.
    /// Its leader migration list matches exactly, so no other spelling protects anything there.
    pub fn name_in_kube_controller_manager(self, version: KubernetesVersion) -> Option<&'static str> {
        let is_renamed = version >= KubernetesVersion::v1(28);
        match self {
            Self::Node | Self::Tagging => None,
            _ if is_renamed => Some(self.canonical_name()),
            Self::NodeLifecycle => Some("cloud-node-lifecycle"),
            Self::Service => Some("service"),
            Self::Route => Some("route"),
            Self::NodeIpam => Some("nodeipam"),
        }
    }

    /// Every accepted name, the canonical one included.
    #[must_use]
    pub const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Node => &["cloud-node", "cloud-node-controller"],
            Self::NodeLifecycle => &["cloud-node-lifecycle", "cloud-node-lifecycle-controller"],
            Self::Service => &["service", "service-controller", "service-lb-controller"],
            Self::Route => &["route", "route-controller", "node-route-controller"],
            Self::NodeIpam => &["nodeipam", "node-ipam-controller"],
            Self::Tagging => &["tagging", "tagging-controller"],
        }
    }

    /// The controller of that name, whatever release the name is from. Case matters, as upstream.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|controller| controller.aliases().contains(&name))
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.canonical_name())
    }
}

/// One of the two processes that share the work during a migration. The names are the ones that leader migration
/// configurations use as `component`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Party {
    #[serde(rename = "kube-controller-manager")]
    KubeControllerManager,
    #[serde(rename = "cloud-controller-manager")]
    CloudControllerManager,
}

impl Party {
    /// The name in a leader migration configuration, the same whatever the binary is called.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KubeControllerManager => "kube-controller-manager",
            Self::CloudControllerManager => "cloud-controller-manager",
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_leads_to_its_controller_and_to_no_other() {
        for controller in Controller::ALL {
            assert!(controller.aliases().contains(&controller.canonical_name()));
            for name in controller.aliases() {
                assert_eq!(Controller::parse(name), Some(controller), "{name}");
                let owners = Controller::ALL
                    .iter()
                    .filter(|other| other.aliases().contains(name))
                    .count();
                assert_eq!(owners, 1, "{name} belongs to one controller");
            }
        }
    }

    #[test]
    fn a_kube_controller_manager_has_a_name_of_its_version() {
        for controller in Controller::ALL {
            for minor in [20, 26, 27, 28, 36] {
                let name = controller.name_in_kube_controller_manager(KubernetesVersion::v1(minor));
                let is_there = !matches!(controller, Controller::Node | Controller::Tagging);
                assert_eq!(name.and_then(Controller::parse), Some(controller).filter(|_| is_there));
                let is_short = name.is_some_and(|name| name != controller.canonical_name());
                assert_eq!(is_short, is_there && minor < 28, "{controller} 1.{minor}");
            }
        }
    }

    #[test]
    fn a_name_that_no_release_had_is_nobody() {
        for name in ["", "Service", "services", "node", "*", "node-lifecycle-controller"] {
            assert_eq!(Controller::parse(name), None, "{name}");
        }
    }
}
