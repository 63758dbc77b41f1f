//! The choices of an installation.

use outrigger_shared::migration::Profile;
use outrigger_shared::version::KubernetesVersion;
use serde_json::{Value, json};

/// Namespace and name of the EndpointSlice with the addresses of the API servers, which they write themselves.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controlplane/reconcilers/endpointsadapter.go>
pub const API_SERVERS: (&str, &str) = ("default", "kubernetes");

/// The name of the Service, the service account and the roles.
pub const NAME: &str = "outrigger-webhook";

/// The treatment of the objects of blocking entries while the webhook is unavailable: Pods of a kube-controller-manager,
/// and control planes and machine configurations of Cluster API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// They wait, so that none gets the in-tree provider in a phase that forbids it.
    #[default]
    Fail,
    /// They are stored as their owner wrote them.
    Ignore,
}

impl FailurePolicy {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// A Secret of the operator's.
    #[default]
    Secret,
    /// cert-manager sets `caBundle`.
    CertManager,
    /// The webhook sets `caBundle`.
    SelfSigned,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub profiles: Vec<Profile>,
    pub namespace: String,
    /// In a management cluster the webhook reads leases of tenants, whose API servers may listen on any port.
    pub hosted: bool,
    /// Whether objects are validated, too.
    pub validation: bool,
    pub control_plane_policy: FailurePolicy,
    pub certificates: Certificates,
    /// PEM in base64.
    pub ca_bundle: Option<String>,
    /// CIDR blocks of the API servers; empty: every address may call.
    pub api_servers: Vec<String>,
    /// The oldest API server that reads the configurations; none: any.
    pub kubernetes_version: Option<KubernetesVersion>,
}

impl Options {
    #[must_use]
    pub fn new(profiles: &[Profile]) -> Self {
        Self {
            profiles: profiles.to_vec(),
            namespace: "outrigger-system".to_owned(),
            hosted: false,
            validation: false,
            control_plane_policy: FailurePolicy::default(),
            certificates: Certificates::default(),
            ca_bundle: None,
            api_servers: Vec::new(),
            kubernetes_version: None,
        }
    }
}

/// As `manifests/base` labels its objects.
pub(super) fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "outrigger", "app.kubernetes.io/component": "webhook"})
}
