//! `CloudProviderMigration`: the one resource that drives the migration of one cluster.
//!
//! Cluster-scoped, group `outrigger.dev`, version `v1alpha1`, short name `cpm`. The schema that the API server
//! enforces is `manifests/base/crd.yaml`; a test here keeps the two the same.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::{leader_migration::LeaderMigrationConfiguration, version::KubernetesVersion};

mod phase;
mod problems;
mod selection;
mod status;

pub use self::{
    phase::Phase,
    problems::Problem,
    selection::{Candidate, KUBE_SYSTEM, Labels, PROTECTED, Selected},
    status::{
        Adoption, AdoptionChange, CloudProviderMigrationStatus, ControllerStatus, HistoryEntry, MAX_ADOPTION_CHANGES,
        MAX_ADOPTION_TEXT, MAX_HISTORY, MAX_MESSAGE, MAX_MISSING, MAX_MISSING_TEXT, MissingFact, NodeCounts, Observer,
        condition,
    },
};

#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "outrigger.dev",
    version = "v1alpha1",
    kind = "CloudProviderMigration",
    plural = "cloudprovidermigrations",
    shortname = "cpm",
    status = "CloudProviderMigrationStatus",
    derive = "PartialEq",
    schema = "disabled",
    doc = "The migration of one cluster from the in-tree AWS cloud provider to an external cloud controller manager."
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudProviderMigrationSpec {
    /// The ID in the tag `kubernetes.io/cluster/ID` of the cluster's AWS resources. Immutable.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// The value of the ownership tag that the webhook adds to a resource without one. Default: `owned`.
    #[serde(default)]
    pub ownership: Ownership,
    /// How far the migration may go. One step at a time, in both directions. Default: `InTree`.
    #[serde(default)]
    pub phase: Phase,
    /// Whether decisions are carried out. Default: `Enforce`.
    #[serde(default)]
    pub mode: Mode,
    /// All old managers are stopped before the new one starts. The webhook does not wait for the condition Prepared; the
    /// manager still needs evidence. Default: false.
    #[serde(default)]
    pub downtime: bool,
    /// The operator's word about kube-controller-managers that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,
    /// Kubernetes version, such as `1.26`, for objects without a version of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// When new Nodes get the uninitialized taint. Default: `WhenManagerReady`.
    #[serde(default)]
    pub node_taint: NodeTaint,
    /// Name of the kube-controller-manager's main lease. Default: `kube-controller-manager`.
    #[serde(default = "default_lease")]
    pub kube_controller_manager_lease: String,
    /// A leader migration configuration (the body of `v1`) instead of the built-in one, the same for both
    /// managers: the webhook adds it to the kube-controller-manager, the operator to the cloud-controller-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_migration: Option<LeaderMigrationConfiguration>,
    /// The objects of this cluster. Without a target the webhook changes nothing.
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// None of the kube-controller-managers that cannot be read runs the shared controllers without the migration lease:
/// each has leader migration on with the right configuration, or, from Migrate on, is external.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attestation {
    /// Prepare or Migrate ([`Self::PHASES`]). It counts only for the run of that phase in which it was set. Migrate counts
    /// in phase Complete, too.
    pub phase: Phase,
    /// Identities of holders of the kube-controller-manager's main lease (`HOSTNAME_UUID`), or their host names. Empty:
    /// every holder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
}

impl Attestation {
    pub const PHASES: [Phase; 2] = [Phase::Prepare, Phase::Migrate];
    pub const MAX_HOLDERS: usize = 16;
    /// Most characters of a holder.
    pub const MAX_HOLDER: usize = 317;
}

/// Objects of the cluster, selected by profile and labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    pub profile: Profile,
    /// Labels of the object's namespace. Absent: any namespace. Empty (`{}`): none for a profile that needs selectors
    /// ([`Profile::needs_selector`]), any for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the object itself. Absent and empty mean the same as for the namespace. A profile that needs selectors
    /// must have at least one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
}

/// The family of objects that a target selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Profile {
    /// The cluster's own Node objects.
    #[default]
    Nodes,
    /// Workloads and Pods of a control plane that runs in another cluster.
    HostedControlPlane,
    /// Cluster API objects.
    ClusterAPI,
    /// Kubermatic and its machine-controller.
    Kubermatic,
    /// Rancher with RKE2 or K3s.
    RancherRKE2,
    /// Rancher with RKE1.
    RancherRKE1,
    /// The `kubeadm-config` ConfigMap.
    KubeadmConfig,
    /// Objects that stand for AWS resources (ACK, Crossplane and others).
    AwsResources,
}

impl Profile {
    pub const ALL: [Self; 8] = [
        Self::Nodes,
        Self::HostedControlPlane,
        Self::ClusterAPI,
        Self::Kubermatic,
        Self::RancherRKE2,
        Self::RancherRKE1,
        Self::KubeadmConfig,
        Self::AwsResources,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "Nodes",
            Self::HostedControlPlane => "HostedControlPlane",
            Self::ClusterAPI => "ClusterAPI",
            Self::Kubermatic => "Kubermatic",
            Self::RancherRKE2 => "RancherRKE2",
            Self::RancherRKE1 => "RancherRKE1",
            Self::KubeadmConfig => "KubeadmConfig",
            Self::AwsResources => "AwsResources",
        }
    }

    /// Whether an empty selector matches nothing. True where one API server holds the objects of many clusters, since
    /// an omitted selector would then select all of them.
    #[must_use]
    pub const fn needs_selector(self) -> bool {
        !matches!(self, Self::Nodes | Self::KubeadmConfig)
    }

    /// Whether the objects live in a management cluster, so that the Nodes of the API server that holds them are not
    /// the migrated cluster's.
    #[must_use]
    pub const fn in_management_cluster(self) -> bool {
        matches!(
            self,
            Self::HostedControlPlane | Self::ClusterAPI | Self::Kubermatic | Self::RancherRKE2 | Self::RancherRKE1
        )
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// The cluster may change and delete the resource.
    #[default]
    Owned,
    /// The cluster uses the resource, others may too.
    Shared,
}

impl Ownership {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owned => crate::tags::OWNED,
            Self::Shared => crate::tags::SHARED,
        }
    }
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Decide and change.
    #[default]
    Enforce,
    /// Decide, warn and count; change nothing.
    Audit,
}

/// When new Nodes get the uninitialized taint: since phase Migrate, and never if they have a provider ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeTaint {
    /// While a cloud-controller-manager holds its main Lease in that cluster. An unknown holder counts as none.
    #[default]
    WhenManagerReady,
    Always,
    Never,
}

/// The main lease's name in every stock kube-controller-manager.
pub const DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE: &str = "kube-controller-manager";

fn default_lease() -> String {
    DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned()
}

impl CloudProviderMigrationSpec {
    /// A migration with every default, as the API server completes one that names only its cluster.
    #[must_use]
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            ownership: Ownership::default(),
            phase: Phase::default(),
            mode: Mode::default(),
            downtime: false,
            attestation: None,
            kubernetes_version: None,
            node_taint: NodeTaint::default(),
            kube_controller_manager_lease: default_lease(),
            leader_migration: None,
            targets: Vec::new(),
        }
    }

    /// The version for objects without one; `None` if unset or invalid ([`Self::problems`] reports that).
    #[must_use]
    pub fn version(&self) -> Option<KubernetesVersion> {
        self.kubernetes_version.as_deref().and_then(|text| text.parse().ok())
    }
}

impl CloudProviderMigration {
    /// Whether the status has the condition with value `True`.
    #[must_use]
    pub fn has_condition(&self, type_: &str) -> bool {
        self.status.as_ref().is_some_and(|status| status.is_true(type_))
    }

    /// The phase whose form objects are to have: that of the spec, unless the manager follows another one
    /// ([`condition::PHASE_FOLLOWED`] is False for this spec).
    #[must_use]
    pub fn followed_phase(&self) -> Phase {
        let status = self.status.as_ref();
        let is_refused = |row: &&Condition| {
            row.type_ == condition::PHASE_FOLLOWED
                && row.status == "False"
                && row.observed_generation == self.metadata.generation
        };
        let refused = status.and_then(|status| status.conditions.iter().find(is_refused));
        let followed = refused.and_then(|_| status?.phase);
        followed.unwrap_or(self.spec.phase)
    }

    /// Whether a manager has seen and recorded the evidence that the migration may go on ([`condition::PREPARED`]).
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.has_condition(condition::PREPARED)
    }
}
