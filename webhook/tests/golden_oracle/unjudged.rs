//! Cases that the second judge cannot judge, or judges differently: each with the reason.

pub const CASES: &[(&str, &str)] = &[
    (
        "rancher-rke2/migrate-kubelet-lists-by-role",
        "the phase table does not say that a kubelet loses --cloud-config",
    ),
    (
        "workload/both-in-one-migrate-1-30-does-not-wait",
        "differs: in the phase table kube-apiserver beside kube-controller-manager in one object moves in Complete",
    ),
];
