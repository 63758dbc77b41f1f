//! Annotations and labels that Outrigger writes or obeys.

/// On a Pod, or on the Pod template of a workload: what the webhook took out of the command lines and what it put in,
/// as JSON ([`crate::command_line::Edit`]). It travels with the template it describes, so a template that is replaced
/// or rolled back never carries a stale one.
pub const UNDO: &str = "outrigger.dev/undo";

/// On a Pod, or on the Pod template of a workload: the text of the kube-controller-manager's leader migration file,
/// which a volume of the same Pod makes a file of.
pub const LEADER_MIGRATION: &str = "outrigger.dev/leader-migration";

/// On a workload: the operator's wish that the phase be applied now, `NAME/PHASE`. Changing it makes the webhook act
/// on an update that changes nothing else.
pub const APPLY: &str = "outrigger.dev/apply";

/// On Kubermatic's Cluster: the migration and its phase, `NAME/PHASE`, that turned the external provider on. Kubermatic
/// never lets it be turned off, so the annotation stays, too.
pub const EXTERNAL: &str = "outrigger.dev/external-cloud-provider";

/// On the cloud-controller-manager's main lease: the latch that says this migration's evidence has been seen.
pub const PREPARED: &str = "outrigger.dev/prepared";

/// Namespace label: the Pods of a kube-controller-manager in here must pass the webhook.
pub const CONTROL_PLANE_LABEL: &str = "outrigger.dev/control-plane";

/// Written by the kubelet on the API object of a static Pod. Such an object is only a picture: the process runs from
/// the file on the node, so changing it would lie.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The label that the API server sets on every namespace: its own name (Kubernetes 1.22 and later).
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
