//! Why a component does not get its phase's flags.

use crate::{command_line::Unreadable, version::KubernetesVersion};

/// Why a component does not get its phase's flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The flags say too little.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A shell script is never rewritten, because its result cannot be known.
    #[error("its flags are inside a shell script, which is never rewritten; it has {found}; {advice}")]
    Script {
        /// The flags of a migration that stand in the script.
        found: String,
        advice: String,
    },
    /// Flags come from variables or files as well, so the visible ones prove nothing.
    #[error("look at its running process: {hides}, so its flags cannot be read here; {advice}")]
    Hidden {
        /// Why the flags cannot be read.
        hides: String,
        /// The flags that the process needs.
        advice: String,
    },
    /// Every row depends on it.
    #[error("its Kubernetes version is not known from the image's tag; set spec.kubernetesVersion")]
    VersionUnknown,
    /// Outside of the table.
    #[error(
        "version {0} is older than 1.20 and not supported; upgrade the component, or set spec.kubernetesVersion if the image's tag is no version of Kubernetes"
    )]
    TooOld(KubernetesVersion),
    /// Another cloud.
    #[error("--cloud-provider is {0:?}, not \"aws\"; this migration is for AWS, correct spec.targets")]
    ForeignProvider(String),
    /// Another cloud's volumes.
    #[error("--external-cloud-volume-plugin is {0:?}, not \"aws\"; this migration is for AWS, correct spec.targets")]
    ForeignVolumePlugin(String),
    /// Node IPAM moves to the other manager, and `--controllers` cannot be written so that it does.
    #[error("spec.leaderMigration gives node IPAM to the cloud-controller-manager; {0}")]
    NodeIpam(&'static str),
    /// The provider that the flag names is not in this version.
    #[error("--cloud-provider=aws is an error in {0}; 1.26 is the last version with the in-tree AWS provider")]
    ProviderGone(KubernetesVersion),
    /// 1.20 and below have no leader migration.
    #[error(
        "version {0} has no leader migration; set spec.downtime: true and stop every old manager first, or upgrade to 1.22"
    )]
    NoLeaderMigration(KubernetesVersion),
    /// The flag is unknown before 1.21, and a gate before 1.22.
    #[error("without --enable-leader-migration it runs beside the kube-controller-manager; {0}")]
    ManagerVersion(String),
    /// 1.21 has it as an alpha feature without a built-in list.
    #[error(
        "leader migration is alpha in 1.21: it needs a feature gate, and no list of it serves both managers; upgrade to 1.22 or set spec.downtime: true"
    )]
    NeedsGateAndFile,
    /// Asking for it with the gate off ends the process.
    #[error(
        "--feature-gates turns ControllerManagerLeaderMigration off, so --enable-leader-migration would be an error; remove that gate"
    )]
    GateOff,
    /// Without leader election, leader migration is ignored.
    #[error("--leader-elect=false makes leader migration void; remove it, or set spec.downtime: true")]
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
