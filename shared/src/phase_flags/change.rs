//! The input of the rules, and their results: changes, or a refusal.

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
    pub version: Option<KubernetesVersion>,
    /// The object holds the kube-controller-manager and the kube-apiserver.
    pub both_in_one_object: bool,
    /// The cluster is migrated with all old managers stopped, so leader migration is not needed.
    pub downtime: bool,
    /// Whether the migration has a leader migration configuration of its own, and how its file gets to the component.
    pub own_configuration: OwnConfiguration,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The flag gets this value; added if it is not there.
    Set(Flag, Cow<'static, str>, &'static str),
    Remove(Flag, &'static str),
}

impl Change {
    /// Carries the change out.
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

/// Why a component does not get its phase's flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A shell script is never rewritten, because its result cannot be known.
    #[error("its flags are inside a shell script, which is never rewritten; it has {found}; {advice}")]
    Script { found: String, advice: String },
    /// Flags come from variables or files as well, so the visible ones prove nothing.
    #[error("look at its running process: {hides}, so its flags cannot be read here; {advice}")]
    Hidden { hides: String, advice: String },
    /// Every row depends on it.
    #[error("its Kubernetes version is not known from the image's tag; set spec.kubernetesVersion")]
    VersionUnknown,
    #[error(
        "version {0} is older than 1.20 and not supported; upgrade the component, or set spec.kubernetesVersion if the image's tag is not a Kubernetes version"
    )]
    TooOld(KubernetesVersion),
    #[error("--cloud-provider is {0:?}, not \"aws\"; this migration is for AWS, correct spec.targets")]
    ForeignProvider(String),
    #[error("--external-cloud-volume-plugin is {0:?}, not \"aws\"; this migration is for AWS, correct spec.targets")]
    ForeignVolumePlugin(String),
    /// Node IPAM moves to the other manager, and `--controllers` cannot be written so that it does.
    #[error("spec.leaderMigration gives node IPAM to the cloud-controller-manager; {0}")]
    NodeIpam(&'static str),
    /// The provider that the flag names is not in this version.
    #[error("--cloud-provider=aws is an error in {0}; 1.26 is the last version with the in-tree AWS provider")]
    ProviderGone(KubernetesVersion),
    #[error(
        "version {0} has no leader migration; set spec.downtime: true and stop every old manager first, or upgrade to 1.22"
    )]
    NoLeaderMigration(KubernetesVersion),
    /// The flag is unknown before 1.21, and a gate before 1.22.
    #[error("without --enable-leader-migration it runs beside the kube-controller-manager; {0}")]
    ManagerVersion(String),
    /// 1.21 has it as an alpha feature without a built-in list.
    #[error(
        "leader migration is alpha in 1.21: it needs a feature gate, and no list of its controllers works for both managers; upgrade to 1.22 or set spec.downtime: true"
    )]
    NeedsGateAndFile,
    /// Asking for it with the gate off ends the process.
    #[error(
        "--feature-gates turns ControllerManagerLeaderMigration off, so --enable-leader-migration would be an error; remove that gate"
    )]
    GateOff,
    /// Without leader election, leader migration is ignored.
    #[error("--leader-elect=false turns leader migration off; remove it, or set spec.downtime: true")]
    LeaderElectionOff,
    /// An external kubelet has no provider, and the in-tree volume plugin mounts nothing without one.
    #[error(
        "an external kubelet of {0} cannot mount in-tree EBS volumes; install the EBS CSI driver and set --feature-gates=CSIMigrationAWS=true on it first"
    )]
    EbsNeedsProvider(KubernetesVersion),
    /// The built-in list would do without the file, but under another lease than the manager's.
    #[error("put spec.leaderMigration on its machines as a file; set --leader-migration-config")]
    OwnConfiguration,
}
