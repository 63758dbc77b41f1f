//! Cases that the second judge cannot judge, or judges differently: each with the reason.

pub const CASES: &[(&str, &str)] = &[
    (
        "helm-chart/migrate-published-0.0.8-without-values",
        "the phase table has no values for a chart without any",
    ),
    (
        "rancher-manifest/prepare-published-0.0.8-without-values",
        "the phase table has no values for a chart without any",
    ),
    (
        "rancher-rke2/migrate-kubelet-lists-by-role",
        "the phase table does not say that a kubelet loses --cloud-config",
    ),
    (
        "workload/both-in-one-migrate-1-30-does-not-wait",
        "differs: in the phase table kube-apiserver beside kube-controller-manager in one object moves in Complete",
    ),
];
