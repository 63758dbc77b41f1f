//! The taints of cloud-controller-managers, as `k8s.io/cloud-provider/api` names them.

/// Key of the taint that keeps Pods off a Node until a cloud-controller-manager has initialized it.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The value that the kubelet gives [`UNINITIALIZED`].
pub const UNINITIALIZED_VALUE: &str = "true";

/// The effect that the kubelet gives [`UNINITIALIZED`].
pub const UNINITIALIZED_EFFECT: &str = "NoSchedule";

/// Key of the taint on a Node whose instance is shut down; effect `NoSchedule`, no value.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
