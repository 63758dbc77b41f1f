//! Annotations and labels that Outrigger writes or obeys.

/// On a Pod, or on the Pod template of a workload: the flags that the webhook removed from the command lines and added
/// to them, as JSON ([`crate::command_line::Edit`]). It is part of the template that it describes, so a template that
/// is replaced or rolled back never has a stale one.
pub const UNDO: &str = "outrigger.dev/undo";

/// On a Pod, or on the Pod template of a workload: the text of the kube-controller-manager's leader migration file,
/// which a volume of the same Pod mounts as a file.
pub const LEADER_MIGRATION: &str = "outrigger.dev/leader-migration";

/// On a workload: the operator's request to apply the phase now, `NAME/PHASE`. A change of it makes the webhook act on
/// an update that changes nothing else.
pub const APPLY: &str = "outrigger.dev/apply";

/// On Kubermatic's Cluster: the migration and its phase, `NAME/PHASE`, that enabled the external provider. Kubermatic
/// rejects disabling it, so the annotation stays, too.
pub const EXTERNAL: &str = "outrigger.dev/external-cloud-provider";

/// On a Node: with the value [`EXTERNAL_KUBELET`] the operator's word that its kubelet is external. Nothing in a Node shows
/// that of a kubelet that was restarted: its provider ID is still that of the in-tree provider.
pub const KUBELET: &str = "outrigger.dev/kubelet";

/// The value of [`KUBELET`].
pub const EXTERNAL_KUBELET: &str = "external";

/// On the cloud-controller-manager's main lease: the latch that the evidence for this migration was observed.
pub const PREPARED: &str = "outrigger.dev/prepared";

/// On the same lease: the text of a latch that was damaged, when a new one replaced it.
pub const PREPARED_DAMAGED: &str = "outrigger.dev/prepared-damaged";

/// On a Lease of leader election: the `renewTime` of the record by which one of our managers released it, after its last
/// write had ended. A lease that was emptied otherwise may have a living holder.
pub const RELEASED: &str = "outrigger.dev/released";

/// Namespace label: the Pods of a kube-controller-manager in here must pass the webhook.
pub const CONTROL_PLANE_LABEL: &str = "outrigger.dev/control-plane";

/// Written by the kubelet on the API object of a static Pod. The process runs from the file on the node, so
/// changing the object has no effect.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The label that the API server sets on every namespace: its own name (Kubernetes 1.22 and later).
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
