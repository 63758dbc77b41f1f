//! The facts about a cluster: one document for every command that looks at one.
//!
//! ```text
//! API server, kubelets ─▶ collect (IO) ─▶ ClusterFacts ─▶ check (pure) ─▶ text, JSON
//!                          objects ─▶ components, nodes (pure)
//! ```
//!
//! The document has no secret: of command lines it has the flags of [`flags::ALLOWED`], of objects the fields below, and no
//! environment variable. A part that could not be read says so ([`Read`]), and never counts as in order.

pub mod collect;
pub mod components;
pub mod definition;
pub mod flags;
pub mod nodes;
mod tenants;

use std::collections::BTreeMap;

use jiff::Timestamp;
use outrigger_shared::migration::{CloudProviderMigrationStatus, Phase, Profile, Target};
use serde::{Deserialize, Serialize};

/// `apiVersion` of the document. Within it fields are only added.
pub const API_VERSION: &str = "cli.outrigger.dev/v1alpha1";

pub const KIND: &str = "ClusterFacts";

/// An answer, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Read<T> {
    Known(T),
    NotRead(NotRead),
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotRead {
    pub reason: String,
    /// The right that is missing, such as `list nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
}

impl NotRead {
    pub fn because(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            right: None,
        }
    }
}

impl<T> Read<T> {
    /// Of a document that has no such field.
    fn of_earlier_version() -> Self {
        Self::NotRead(NotRead::because("an earlier version of outrigger wrote these facts"))
    }

    /// # Errors
    /// Why it is not known.
    pub fn get(&self) -> Result<&T, NotRead> {
        match self {
            Self::Known(value) => Ok(value),
            Self::NotRead(why) => Err(why.clone()),
        }
    }

    pub fn known(&self) -> Option<&T> {
        self.get().ok()
    }
}

impl<T> From<Result<T, NotRead>> for Read<T> {
    fn from(answer: Result<T, NotRead>) -> Self {
        match answer {
            Ok(value) => Self::Known(value),
            Err(why) => Self::NotRead(why),
        }
    }
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFacts {
    pub api_version: String,
    pub kind: String,
    /// The context of the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The version of this command.
    pub by: String,
    /// When the collection began, by the API server's clock: ages of objects are compared with it.
    pub at: Timestamp,
    /// By how much this machine's clock is ahead of the API server's.
    #[serde(default)]
    pub clock_ahead_seconds: i64,
    /// `gitVersion` of the API server.
    pub version: Read<String>,
    pub components: Read<Vec<Component>>,
    pub nodes: Read<Vec<Node>>,
    pub leases: Read<Vec<Lease>>,
    /// The `CloudProviderMigration`s; none if their CustomResourceDefinition is not installed.
    pub migrations: Read<Vec<Migration>>,
    /// Registrations of webhooks of Outrigger.
    pub registrations: Read<Vec<Registration>>,
    /// Names of PersistentVolumes on EBS, at most [`MAX_NAMES`], and how many there are.
    pub ebs_volumes: Read<Names>,
    pub has_ebs_csi_driver: Read<bool>,
    pub services: Read<Vec<Service>>,
    /// The control planes that this cluster hosts: those that targets of profile HostedControlPlane select.
    #[serde(default = "Read::of_earlier_version")]
    pub tenants: Read<Vec<Tenant>>,
    /// The fields of the CustomResourceDefinition; none if it is not installed.
    #[serde(default = "Read::of_earlier_version")]
    pub definition: Read<Vec<String>>,
    /// The Pods of the webhook, in all namespaces.
    #[serde(default = "Read::of_earlier_version")]
    pub webhooks: Read<Vec<Webhook>>,
}

/// Most names of a list of which only some are shown.
pub const MAX_NAMES: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    pub count: usize,
    pub names: Vec<String>,
}

/// A process of the control plane, as its Pod or the template of its workload shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// `kube-controller-manager`, `kube-apiserver` or `aws-cloud-controller-manager`.
    pub component: String,
    /// `Pod namespace/name`.
    pub object: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// From the tag of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The values of [`flags::ALLOWED`] flags; absent where they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<BTreeMap<String, String>>,
    /// Why its flags cannot be read, or why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// With which flags this version does not start, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub does_not_start: Option<String>,
    /// A mirror Pod of a Node that is none of the control plane: every kubelet can make one.
    #[serde(default)]
    pub is_ignored: bool,
    /// It is the manager of Outrigger.
    #[serde(default)]
    pub is_outrigger: bool,
    #[serde(default)]
    pub is_ready: bool,
    /// For a kube-controller-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
}

/// The meaning of the flags of a kube-controller-manager for the controllers that both managers have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    pub acts: Acts,
    /// With an in-tree provider, whatever controllers it runs.
    pub is_in_tree: bool,
    /// Whether it runs the route controller.
    pub routes: bool,
    /// The flag by which it elects its leader otherwise than by the lease of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_lock: Option<String>,
    /// Why its leader migration configuration is not known to be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// Its host names: the first part of its identity on a lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// When a kube-controller-manager acts on the controllers that both managers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acts {
    /// It is external, or its flags turn them off.
    Never,
    /// While it holds the migration lease.
    WithMigrationLease,
    /// While it is the leader.
    WhileLeader,
    /// Always: it takes part in no election, or in another one.
    Always,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    pub created: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    pub is_control_plane: bool,
    pub is_ready: bool,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// The label `kubernetes.io/hostname`: the name that the kubelet gives itself without a cloud provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    #[serde(default)]
    pub is_uninitialized: bool,
    /// The annotation `outrigger.dev/kubelet` says that the kubelet is external.
    #[serde(default)]
    pub is_marked_external: bool,
    /// Whether its kubelet hands EBS volumes to the CSI driver, by its CSINode.
    pub migrates_ebs: Read<bool>,
    /// Whether it has pulled an image from ECR.
    #[serde(default)]
    pub has_ecr_image: bool,
    pub kubelet: Read<Kubelet>,
}

/// The flags of a kubelet, as its process or its distribution shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    pub from: KubeletSource,
    pub flags: BTreeMap<String, String>,
    /// With which flags this version does not start, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub does_not_start: Option<String>,
}

impl Kubelet {
    pub fn provider(&self) -> &str {
        self.flags.get("cloud-provider").map_or("", String::as_str)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KubeletSource {
    /// The command line of its process (`/debug/pprof/cmdline`).
    Process,
    /// The annotation in which RKE2 or K3s writes the arguments of its last start.
    NodeArgs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    pub duration_seconds: u64,
    /// By the holder's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    pub name: String,
    pub phase: Phase,
    pub generation: Option<i64>,
    /// The name of the kube-controller-managers' main lease.
    pub main_lease: String,
    /// The name of the migration lease.
    pub migration_lease: String,
    /// The profiles of its targets.
    pub profiles: Vec<Profile>,
    /// For the reading of tenants; their selectors are no facts.
    #[serde(skip)]
    pub targets: Vec<Target>,
    /// It has an attestation.
    #[serde(default)]
    pub is_attested: bool,
    /// `spec.downtime`.
    #[serde(default)]
    pub is_downtime: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CloudProviderMigrationStatus>,
}

impl Migration {
    /// Its Nodes and its control plane are in another cluster than its object.
    pub fn is_elsewhere(&self) -> bool {
        self.profiles.iter().any(|profile| profile.in_management_cluster())
    }

    /// Kubermatic has a manager of its own.
    pub fn needs_manager(&self) -> bool {
        self.profiles.is_empty() || self.profiles.iter().any(|profile| *profile != Profile::Kubermatic)
    }

    /// Whether a condition is of the spec of now.
    pub fn is_of_now(&self, observed_generation: Option<i64>) -> bool {
        observed_generation.is_none() || self.generation.is_none() || observed_generation == self.generation
    }
}

/// A MutatingWebhookConfiguration of Outrigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    pub name: String,
    pub webhooks: usize,
    /// Names of webhooks without a `caBundle`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_ca: Vec<String>,
    /// The API server calls a Service of this cluster.
    #[serde(default)]
    pub calls_service: bool,
}

/// A cluster whose control plane runs in this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// The name of its migration.
    pub migration: String,
    /// Where its targets select objects.
    pub namespaces: Vec<String>,
    pub components: Read<Vec<Component>>,
}

impl ClusterFacts {
    /// Whether the migrations are about other clusters, so that this one's Nodes and control plane are not theirs.
    #[must_use]
    pub fn is_management_cluster(&self) -> bool {
        let migrations = self.migrations.known().map(Vec::as_slice).unwrap_or_default();
        !migrations.is_empty() && migrations.iter().all(Migration::is_elsewhere)
    }

    /// Outrigger's managers of this cluster and of its tenants.
    ///
    /// # Errors
    /// Why those of this cluster are not known.
    pub fn managers(&self) -> Result<impl Iterator<Item = &Component>, NotRead> {
        let tenants = self.tenants.known().into_iter().flatten();
        let of_tenants = tenants.filter_map(|tenant| tenant.components.known()).flatten();
        let components = self.components.get()?.iter().chain(of_tenants);
        Ok(components.filter(|component| component.is_outrigger))
    }

    /// The facts about a tenant that its control plane shows. All others are in its own cluster.
    #[must_use]
    pub fn of_tenant(&self, tenant: &Tenant) -> Self {
        const API_SERVER: &str = "kube-apiserver";
        let elsewhere = || NotRead::because("it is in the tenant's cluster: check that one, too");
        let components = tenant.components.known().into_iter().flatten();
        let mut api_servers = components.filter(|component| component.component == API_SERVER);
        let version = api_servers.find_map(|component| component.version.clone());

        Self {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            context: self.context.clone(),
            by: self.by.clone(),
            at: self.at,
            clock_ahead_seconds: self.clock_ahead_seconds,
            version: version.ok_or_else(elsewhere).into(),
            components: tenant.components.clone(),
            // Its Nodes run no part of the control plane, and its leases are not here.
            nodes: Read::Known(Vec::new()),
            leases: Err(elsewhere()).into(),
            migrations: Read::Known(Vec::new()),
            registrations: Err(elsewhere()).into(),
            ebs_volumes: Err(elsewhere()).into(),
            has_ebs_csi_driver: Err(elsewhere()).into(),
            services: Err(elsewhere()).into(),
            tenants: Read::Known(Vec::new()),
            definition: Err(elsewhere()).into(),
            webhooks: Err(elsewhere()).into(),
        }
    }
}

/// A Pod of the webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// `Pod namespace/name`.
    pub object: String,
    /// From the tag of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default)]
    pub is_ready: bool,
}

/// A Service of type `LoadBalancer` that does not belong to another controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// `namespace/name`.
    pub name: String,
    pub created: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    pub has_address: bool,
    /// When a controller last changed the address, by `managedFields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressed: Option<Timestamp>,
    /// It has the finalizer of a service controller.
    pub has_finalizer: bool,
}
