//! Cases that the second judge cannot judge, or judges differently: each with the reason.

pub const CASES: &[(&str, &str)] = &[
    (
        "rancher-rke2/migrate-kubelet-lists-by-role",
        "design.md 2.2 does not say that a kubelet loses --cloud-config",
    ),
    (
        "workload/both-in-one-migrate-1-30-does-not-wait",
        "differs: in design.md 2.2 kube-apiserver beside kube-controller-manager in one object moves in Complete",
    ),
];
