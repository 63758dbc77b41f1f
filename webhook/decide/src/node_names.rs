//! **The name of a Node, before and after its kubelet becomes external**, for each way in which a kubelet is started.
//!
//! A cloud-controller-manager finds the instance of a new Node by its provider ID or by the private DNS name. With the
//! in-tree provider a Node always has the private DNS name of its instance: the kubelet ignores every other name
//! (`getNodeName` of `cmd/kubelet/app/server.go` at v1.26.13). An external kubelet with another name registers a second
//! Node. No rule changes that name; each row where it may differ has a warning, in Prepare and again in Migrate.
//!
//! Sources: `pkg/rke2/rke2_linux.go` of <https://github.com/rancher/rke2> (a name from the instance metadata for `aws`),
//! `pkg/rke2/config.go` of <https://github.com/rancher/cluster-api-provider-rke2> (workers get the name of the control
//! plane), `pkg/agent/config` of <https://github.com/k3s-io/k3s> (`node-name`, otherwise the host name).

use outrigger_shared::migration::Phase;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNames {
    /// The kubelets.
    pub kubelets: &'static str,
    /// The name with the in-tree provider.
    pub in_tree: &'static str,
    /// The name of an external kubelet.
    pub external: &'static str,
    /// The change by a phase.
    pub change: &'static str,
    /// When a warning names it, and a part of that warning; none if the name stays.
    pub warning: Option<(&'static str, &'static str)>,
}

const PRIVATE_DNS_NAME: &str = "private DNS name of the instance";
const BY_HOST: &str = "an external kubelet names its Node after its host";
const UNCHANGED: &str = "nothing";

pub(super) const KUBEADM: NodeNames = NodeNames {
    kubelets: "kubeadm: KubeadmControlPlane, KubeadmConfig and their templates",
    in_tree: PRIVATE_DNS_NAME,
    external: "`nodeRegistration.name` or `hostname-override`, otherwise the host name",
    change: UNCHANGED,
    warning: Some(("neither is set", "set nodeRegistration.name in")),
};

pub(super) const KUBELET: NodeNames = NodeNames {
    kubelets: "a kubelet in a Pod, a DaemonSet, or on a machine (`outrigger node edit`)",
    in_tree: PRIVATE_DNS_NAME,
    external: "`--hostname-override`, otherwise the host name",
    change: UNCHANGED,
    warning: Some(("it is not set", "set --hostname-override to")),
};

pub(super) const RKE1: NodeNames = NodeNames {
    kubelets: "RKE1 with `cloudProvider.name: aws`",
    in_tree: PRIVATE_DNS_NAME,
    external: "host name of the instance metadata",
    change: "`useInstanceMetadataHostname: true`, so that the name stays",
    warning: Some((
        "always: a machine registered with `--node-name` has that name",
        "registered with --node-name",
    )),
};

pub(super) const RKE1_OVERRIDES: NodeNames = NodeNames {
    kubelets: "RKE1 with `hostname-override` or `hostnameOverride`",
    in_tree: PRIVATE_DNS_NAME,
    external: "that name",
    change: UNCHANGED,
    warning: Some(("it is not the name of an instance", "an external kubelet")),
};

pub(super) const RKE2: NodeNames = NodeNames {
    kubelets: "RKE2 with `cloud-provider-name: aws`: Rancher's Cluster, RKE2ControlPlane and its workers",
    in_tree: PRIVATE_DNS_NAME,
    external: "host name of the instance metadata; up to 1.26 `hostname -f` where the instance requires tokens (IMDSv2)",
    change: "nothing: the name of the provider stays `aws`, and arguments switch the components",
    warning: Some(("up to 1.26", "by hostname -f where the instance requires tokens")),
};

pub(super) const RKE2_BY_ARGUMENTS: NodeNames = NodeNames {
    kubelets: "RKE2 and K3s with `aws` only in arguments of the kubelet",
    in_tree: PRIVATE_DNS_NAME,
    external: "`node-name`, otherwise the host name; of the instance metadata with `node-name-from-cloud-provider-metadata`",
    change: UNCHANGED,
    warning: Some(("neither is set", BY_HOST)),
};

pub(super) const EXTERNAL: NodeNames = NodeNames {
    kubelets: "external from the start, in every kind",
    in_tree: "does not apply",
    external: "as its operator configured it",
    change: "nothing; `cloud-provider-name` stays",
    warning: None,
};

/// Every row, in the order of the documented table.
pub const NODE_NAMES: [NodeNames; 7] = [
    KUBEADM,
    KUBELET,
    RKE1,
    RKE1_OVERRIDES,
    RKE2,
    RKE2_BY_ARGUMENTS,
    EXTERNAL,
];

/// Whether a phase names changes of Node names: Prepare, so that they are known before they happen, and Migrate.
pub(super) const fn is_said_in(phase: Phase) -> bool {
    matches!(phase, Phase::Prepare | Phase::Migrate)
}

/// Kubelets of kubeadm without a name, by the parts of their configuration.
pub(super) fn of_kubeadm(unnamed: &[&str]) -> String {
    format!(
        "set nodeRegistration.name in {} to the private DNS name of the instance, unless the host has that name: {BY_HOST}",
        unnamed.join(", ")
    )
}

pub(super) const OF_KUBELET: &str = "set --hostname-override to the private DNS name of the instance, unless the host has \
    that name: an external kubelet names its Node after its host";

/// RKE1 takes the name from the instance metadata, but not for a machine with a name of its own.
pub(super) fn of_rke1(phase: Phase) -> String {
    format!(
        "useInstanceMetadataHostname becomes true{}, so no machine may be registered with --node-name; register such machines \
         again without it",
        in_migrate(phase)
    )
}

/// RKE2 takes the name from the instance metadata. It asks without a token up to 1.26.
pub(super) fn of_rke2(phase: Phase) -> String {
    let kubelets = match phase {
        Phase::InTree | Phase::Prepare => "from Migrate on kubelets",
        Phase::Migrate | Phase::Complete => "external kubelets",
    };
    format!(
        "{kubelets} name Nodes by instance metadata, or by hostname -f where the instance requires tokens (IMDSv2); check that \
         --hostname-override of each running kubelet is the name of its Node"
    )
}

/// RKE2 and K3s without `cloud-provider-name: aws`.
pub(super) fn of_rke2_by_arguments(phase: Phase, remedy: &str) -> String {
    let when = in_migrate(phase);
    format!("kubelets get aws only by an argument, and {BY_HOST}{when}; {remedy}")
}

const fn in_migrate(phase: Phase) -> &'static str {
    match phase {
        Phase::InTree | Phase::Prepare => " in Migrate",
        Phase::Migrate | Phase::Complete => "",
    }
}
