//! The input of the rules, and the changes that they request.

use std::borrow::Cow;

use super::{NodeIpam, OwnConfiguration};
use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    migration::Phase,
    version::KubernetesVersion,
};

/// The input of the rules, besides the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// The phase whose row applies.
    pub phase: Phase,
    /// The component's own version; none if unknown.
    pub version: Option<KubernetesVersion>,
    /// The object holds the kube-controller-manager and the kube-apiserver.
    pub both_in_one_object: bool,
    /// The cluster is migrated with all old managers stopped, so leader migration is not needed.
    pub downtime: bool,
    /// Whether the migration has a leader migration configuration of its own, and how its file gets to the component.
    pub own_configuration: OwnConfiguration,
    /// Which manager runs node IPAM from Migrate on.
    pub node_ipam: NodeIpam,
    /// Another field of the object may name the component's provider, so a list without one is no proof that it has
    /// none.
    pub named_elsewhere: bool,
}

impl Circumstances {
    /// In one object with a kube-controller-manager, the API server's part waits for Complete while its flag has no
    /// effect. From 1.29 on the flag ends the process, and no such object is in-tree any more, so nothing waits.
    pub(super) fn api_server_waits(&self) -> bool {
        let has_no_effect = self.version.is_none_or(|version| version < KubernetesVersion::v1(29));
        self.both_in_one_object && has_no_effect
    }
}

/// One change, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The flag gets this value; added if it is not there.
    Set(Flag, Cow<'static, str>, &'static str),
    /// Remove the flag.
    Remove(Flag, &'static str),
}

impl Change {
    /// Carries the change out.
    ///
    /// # Errors
    /// When the command line cannot be read.
    pub fn apply(&self, line: &mut CommandLine) -> Result<(), Unreadable> {
        match self {
            Self::Set(flag, value, _) => line.set(*flag, value),
            Self::Remove(flag, _) => line.remove(*flag),
        }
    }

    /// An instruction to make the change by hand.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Set(flag, value, _) => format!("write --{}={value}", flag.name),
            Self::Remove(flag, _) => format!("remove --{}", flag.name),
        }
    }

    /// Which flag it is about.
    #[must_use]
    pub const fn flag(&self) -> Flag {
        match self {
            Self::Set(flag, ..) | Self::Remove(flag, _) => *flag,
        }
    }

    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Set(_, _, reason) | Self::Remove(_, reason) => reason,
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set(flag, value, reason) => write!(formatter, "--{}={value}: {reason}", flag.name),
            Self::Remove(flag, reason) => write!(formatter, "--{} removed: {reason}", flag.name),
        }
    }
}
