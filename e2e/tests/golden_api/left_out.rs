//! The cases that this test leaves out: each with the reason, of which the found one contains the text.

use std::collections::BTreeMap;

use outrigger_cluster_harness::cluster::Version;

use crate::published;

const CASES: &[(&str, &str)] = &[
    ("amazonec2-config/odd-words", "unknown field \"tags\""),
    ("workload/go-runner-and-sidecar", "vendorField"),
    (
        "tenant-control-plane/own-configuration-is-brought-by-hand",
        "the name label of another",
    ),
    (
        "workload/namespace-labels-unknown",
        "always knows the labels of a namespace",
    ),
    (
        "workload/namespace-that-is-named-needs-no-labels",
        "always knows the labels of a namespace",
    ),
    ("workload/what-is-being-deleted-says-so", "only an API server sets"),
];

/// Every object of this test has a name of its own.
const KNOWN_BY_NAME: &[&str] = &[
    "helm-chart/chart-in-the-object",
    "helm-chart/config-of-another-chart",
    "helm-chart/config-with-args",
    "helm-chart/config-without-args",
    "kubeadm-config/an-alias-is-named",
    "kubeadm-config/anchors-are-refused",
    "kubeadm-config/another-kind-is-refused",
    "kubeadm-config/apply-annotation-acts",
    "kubeadm-config/audit-changes-nothing",
    "kubeadm-config/back-from-complete-to-migrate",
    "kubeadm-config/back-to-in-tree",
    "kubeadm-config/back-to-prepare",
    "kubeadm-config/broken-undo-annotation",
    "kubeadm-config/complete-1-29-loses-the-flag",
    "kubeadm-config/complete-map",
    "kubeadm-config/complete-v1beta4",
    "kubeadm-config/foreign-cloud-is-refused",
    "kubeadm-config/kubelet-config-has-nothing-to-change",
    "kubeadm-config/kubelet-config-of-one-instance",
    "kubeadm-config/kubelet-config-with-a-provider-is-warned-about",
    "kubeadm-config/kubelet-config-with-the-gate-off",
    "kubeadm-config/migrate-ampersand-in-an-address",
    "kubeadm-config/migrate-map",
    "kubeadm-config/migrate-unprepared-waits",
    "kubeadm-config/migrate-v1beta2-1-22-keeps-the-volume-plugin",
    "kubeadm-config/migrate-v1beta4",
    "kubeadm-config/migrate-with-downtime",
    "kubeadm-config/no-provider-gets-none",
    "kubeadm-config/no-yaml-is-refused",
    "kubeadm-config/owner-added-a-flag-and-goes-back",
    "kubeadm-config/owner-applies-the-original-again",
    "kubeadm-config/owner-wrote-the-flag-itself-and-goes-back",
    "kubeadm-config/prepare-1-20-is-refused",
    "kubeadm-config/prepare-1-24-gate-off-tells-of-volumes",
    "kubeadm-config/prepare-map",
    "kubeadm-config/prepare-v1beta4",
    "kubeadm-config/selector-without-the-name-reaches-nothing",
    "kubeadm-config/unknown-api-version-is-refused",
    "kubeadm-config/update-of-labels-is-ignored",
    "kubeadm-config/version-from-the-migration",
    "kubeadm-config/version-unknown-is-refused",
];

/// With the published definitions only.
const BY_PUBLISHED: &[(&str, &str)] = &[
    ("ec2-node-class/own-key-is-refused-by-karpenter", "restricted tag"),
    ("kubeadm-control-plane/no-argument-list-is-refused", "extraArgs"),
    ("kubeadm-control-plane/shape-of-the-field-wins", "extraArgs"),
    ("kubermatic-cluster/migrate-version-unknown", "Required value"),
    ("rancher-rke2/migrate-misindented-entry", "unknown field"),
    // Earlier releases of the provider have it in the same version of the API.
    (
        "rke2-control-plane/version-of-the-agent-config",
        "unknown field \"spec.agentConfig.version\"",
    ),
];

/// On Kubernetes 1.26 only.
const BY_1_26: &[(&str, &str)] = &[(
    "volume-attributes-class/deleting-the-drivers-tag",
    "could not find the requested resource",
)];

/// Differences between the cases that are left out and the lists.
pub fn check(version: Version, found: &BTreeMap<String, String>) -> Vec<String> {
    let by_version = if version == Version::V1_26 { BY_1_26 } else { &[] };
    let published = if published::find("crds").is_some() {
        BY_PUBLISHED
    } else {
        &[]
    };
    let by_name = KNOWN_BY_NAME.iter().map(|name| (*name, "by its name"));
    let listed: BTreeMap<&str, &str> = CASES
        .iter()
        .chain(published)
        .chain(by_version)
        .copied()
        .chain(by_name)
        .collect();
    let mut wrong = Vec::new();
    for (name, why) in found {
        match listed.get(name.as_str()) {
            Some(reason) if why.contains(reason) => {}
            Some(reason) => wrong.push(format!("{name} is left out for another reason than {reason:?}: {why}")),
            None => wrong.push(format!("{name} is left out: {why}")),
        }
    }
    let not_found = listed.keys().filter(|name| !found.contains_key(**name));
    wrong.extend(not_found.map(|name| format!("{name} is not left out, take it off the list")));
    wrong
}
