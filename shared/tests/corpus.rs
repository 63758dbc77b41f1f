//! Reads real objects of other projects: one row for each container that runs, or seems to run, a component. The rows
//! were written by hand from the objects, so that a new misreading fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;

use outrigger_shared::{
    command_line::{CommandLine, List},
    component::{Certainty, Finding, find},
    phase_flags::flag::CLOUD_PROVIDER,
};

mod corpus_support;
mod published;

/// Component, certainty, shape, value of `--cloud-provider` (`-` for none), version (`-` for none).
fn row(finding: &Finding<'_>) -> String {
    let line = CommandLine::of_container(finding.container).unwrap();
    let value = line.value(CLOUD_PROVIDER);
    let value = value.map_or_else(|_| "?".to_owned(), |value| value.unwrap_or_else(|| "-".to_owned()));
    let version = finding
        .version()
        .map_or_else(|| "-".to_owned(), |version| version.to_string());
    let sure = if finding.certainty == Certainty::Recognized {
        ""
    } else {
        "suspected "
    };
    format!("{sure}{} {} {value} {version}", finding.component, shape(&line))
}

fn shape(line: &CommandLine) -> &'static str {
    let words = |list| line.list(list).unwrap_or_default();
    let starts = |name: &str| {
        let mut all = words(List::Command).iter().chain(words(List::Args));
        all.any(|word| word.rsplit('/').next() == Some(name))
    };
    match (words(List::Command).is_empty(), words(List::Args).is_empty()) {
        _ if line.script().is_some() => "script",
        _ if starts("http-prober") => "json",
        _ if starts("go-runner") => "go-runner",
        _ if starts("hyperkube") => "hyperkube",
        (false, true) => "command",
        (true, false) => "args",
        (false, false) => "both",
        (true, true) => "image",
    }
}

#[test]
fn every_component_of_real_objects_is_read_as_it_is() {
    let Some(folder) = published::find("corpus") else {
        return;
    };
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (file, pod) in corpus_support::pods(&folder) {
        let findings = find(&pod["spec"], pod.pointer("/metadata/labels"));
        found.insert(file, findings.iter().map(row).collect::<Vec<_>>().join("; "));
    }
    let mut wrong: Vec<String> = FACTS
        .iter()
        .filter(|(file, fact)| found.get(*file).map(String::as_str) != Some(*fact))
        .map(|(file, fact)| format!("{file}: {fact:?}, but read as {:?}", found.get(*file)))
        .collect();
    let has_no_fact = |file: &&String| !FACTS.iter().any(|(known, _)| known == file);
    wrong.extend(
        found
            .keys()
            .filter(has_no_fact)
            .map(|file| format!("{file}: no fact about it")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nothing where the object runs none of the components, though it may look like it.
const FACTS: &[(&str, &str)] = &[
    ("cloud-providers/alibaba-ccm-daemonset.yaml", ""),
    (
        "cloud-providers/alibaba-kube-controller-manager.yaml",
        "kube-controller-manager command external 1.10.4",
    ),
    (
        "cloud-providers/aws-ccm-capa-e2e.yaml",
        "aws-cloud-controller-manager args aws -",
    ),
    (
        "cloud-providers/aws-ccm-daemonset-base.yaml",
        "aws-cloud-controller-manager args aws 1.27.1",
    ),
    (
        "cloud-providers/aws-ccm-daemonset-v1.20.0.yaml",
        "aws-cloud-controller-manager args aws 1.20.0",
    ),
    (
        "cloud-providers/aws-ccm-daemonset-v1.23.0.yaml",
        "aws-cloud-controller-manager args aws 1.23.0",
    ),
    (
        "cloud-providers/aws-ccm-superset-role-patch.yaml",
        "aws-cloud-controller-manager args aws -",
    ),
    ("cloud-providers/azure-cloud-controller-manager.yaml", ""),
    (
        "cloud-providers/azure-external-kube-apiserver-1.22.yaml",
        "kube-apiserver both external 1.22.1",
    ),
    (
        "cloud-providers/azure-external-kube-controller-manager-1.22.yaml",
        "kube-controller-manager both - 1.22.1",
    ),
    (
        "cloud-providers/azure-intree-kube-controller-manager.yaml",
        "kube-controller-manager hyperkube azure 1.16.0",
    ),
    ("cloud-providers/digitalocean-ccm-v0.1.48.yaml", ""),
    (
        "cloud-providers/digitalocean-sh-kube-controller-manager.yaml",
        "kube-controller-manager script ? 1.11.1",
    ),
    ("cloud-providers/gce-ccm-capg-e2e.yaml", ""),
    ("cloud-providers/gcp-ccm-daemonset.yaml", ""),
    ("cloud-providers/hcloud-ccm-daemonset-full.yaml", ""),
    ("cloud-providers/hcloud-ccm-networks.yaml", ""),
    ("cloud-providers/openstack-ccm-daemonset.yaml", ""),
    ("cloud-providers/openstack-ccm-pod.yaml", ""),
    ("cloud-providers/vsphere-ccm-pod.yaml", ""),
    ("cloud-providers/vsphere-ccm-v1.20.yaml", ""),
    (
        "cluster-api-nested/statefulset-apiserver.yaml",
        "kube-apiserver both - 1.22.13",
    ),
    (
        "cluster-api-nested/statefulset-controller-manager.yaml",
        "kube-controller-manager both - 1.22.13",
    ),
    (
        "gardener/shoot-kube-apiserver-deployment.yaml",
        "kube-apiserver command - 1.32.0",
    ),
    (
        "hypershift/aws-cloud-controller-manager.yaml",
        "aws-cloud-controller-manager both aws -",
    ),
    ("hypershift/cluster-autoscaler.yaml", ""),
    ("hypershift/kube-apiserver.yaml", "kube-apiserver hyperkube - -"),
    (
        "hypershift/kube-controller-manager-AROSwift.yaml",
        "kube-controller-manager hyperkube external -",
    ),
    (
        "hypershift/kube-controller-manager.yaml",
        "kube-controller-manager hyperkube - -",
    ),
    ("hypershift/kubevirt-cloud-controller-manager.yaml", ""),
    ("hypershift/openshift-apiserver.yaml", ""),
    ("hypershift/openstack-cloud-controller-manager.yaml", ""),
    (
        "kops/1.18-minimal-kube-apiserver.yaml",
        "kube-apiserver both aws 1.18.0",
    ),
    (
        "kops/1.20-minimal-kube-controller-manager.yaml",
        "kube-controller-manager both aws 1.18.0",
    ),
    (
        "kops/1.22-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.21.0",
    ),
    (
        "kops/1.22-minimal-kube-apiserver.yaml",
        "kube-apiserver both aws 1.18.0",
    ),
    (
        "kops/1.22-minimal-kube-controller-manager.yaml",
        "kube-controller-manager both aws 1.18.0",
    ),
    (
        "kops/1.23-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.21.0",
    ),
    (
        "kops/1.23-minimal-kube-controller-manager.yaml",
        "kube-controller-manager go-runner aws 1.23.0",
    ),
    (
        "kops/1.24-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.24.1",
    ),
    (
        "kops/1.24-side-loading-kube-controller-manager-arm64.yaml",
        "kube-controller-manager both aws 1.22.0",
    ),
    (
        "kops/1.26-audit-kube-controller-manager.yaml",
        "kube-controller-manager go-runner aws 1.23.0",
    ),
    (
        "kops/1.26-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.26.0",
    ),
    (
        "kops/1.26-minimal-kube-apiserver.yaml",
        "kube-apiserver go-runner aws 1.23.0",
    ),
    (
        "kops/1.28-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.27.6",
    ),
    (
        "kops/1.29-minimal-kube-apiserver.yaml",
        "kube-apiserver go-runner external 1.28.0",
    ),
    (
        "kops/1.29-minimal-kube-controller-manager.yaml",
        "kube-controller-manager go-runner external 1.28.0",
    ),
    (
        "kops/1.31-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.28.9",
    ),
    (
        "kops/1.33-minimal-kube-apiserver.yaml",
        "kube-apiserver go-runner - 1.33.0",
    ),
    (
        "kops/1.34-aws-cloud-controller-daemonset.yaml",
        "aws-cloud-controller-manager args aws 1.34.0",
    ),
    (
        "kops/HEAD-dedicated-apiserver-kube-apiserver.yaml",
        "kube-apiserver go-runner - 1.35.0",
    ),
    ("kops/HEAD-gcp-cloud-controller-daemonset.yaml", ""),
    ("kops/HEAD-hcloud-cloud-controller-deployment.yaml", ""),
    ("kops/HEAD-kube-apiserver-healthcheck-pod.yaml", ""),
    (
        "kops/HEAD-oidc-kube-apiserver.yaml",
        "kube-apiserver go-runner - 1.35.0",
    ),
    ("kubeadm/apiserver-1.20.7-json.yaml", "kube-apiserver command - 1.20.7"),
    ("kubeadm/apiserver-1.23.3.yaml", "kube-apiserver command - 1.23.3"),
    ("kubeadm/apiserver-1.24.1.yaml", "kube-apiserver command - 1.24.1"),
    (
        "kubeadm/apiserver-deployment-insecure-bind.yaml",
        "kube-apiserver command - -",
    ),
    ("kubeadm/apiserver-no-command.yaml", "kube-apiserver image - 1.6.0"),
    (
        "kubeadm/kube-controller-manager-1.24.1.yaml",
        "kube-controller-manager command - 1.24.1",
    ),
    (
        "kubeadm/kube-controller-manager-no-flags.yaml",
        "kube-controller-manager command - 1.6.0",
    ),
    ("kubelet/kubelet-pod-anonymous-auth.yaml", "kubelet command - 1.6.0"),
    (
        "kubermatic/aws-1.19.0-controller-manager.yaml",
        "kube-controller-manager json aws 1.19.0",
    ),
    ("kubermatic/aws-1.22.1-apiserver.yaml", "kube-apiserver both aws 1.22.1"),
    (
        "kubermatic/aws-1.22.1-controller-manager.yaml",
        "kube-controller-manager json aws 1.22.1",
    ),
    (
        "kubermatic/aws-1.24.0-aws-cloud-controller-manager-externalCloudProvider.yaml",
        "aws-cloud-controller-manager json aws 1.24.4",
    ),
    (
        "kubermatic/aws-1.24.0-controller-manager-externalCloudProvider.yaml",
        "kube-controller-manager json - 1.24.0",
    ),
    (
        "kubermatic/aws-1.24.0-controller-manager.yaml",
        "kube-controller-manager json aws 1.24.0",
    ),
    ("kubermatic/aws-1.26.0-apiserver.yaml", "kube-apiserver both aws 1.26.0"),
    (
        "kubermatic/aws-1.36.0-apiserver-externalCloudProvider.yaml",
        "kube-apiserver both - 1.36.0",
    ),
    (
        "kubermatic/aws-1.36.0-controller-manager.yaml",
        "kube-controller-manager json aws 1.36.0",
    ),
    (
        "kubermatic/azure-1.22.1-controller-manager.yaml",
        "kube-controller-manager json azure 1.22.1",
    ),
    (
        "kubermatic/azure-1.29.0-controller-manager-externalCloudProvider.yaml",
        "kube-controller-manager json - 1.29.0",
    ),
    (
        "kubermatic/azure-1.36.0-azure-cloud-controller-manager-externalCloudProvider.yaml",
        "",
    ),
    (
        "kubermatic/baremetal-1.33.0-controller-manager.yaml",
        "kube-controller-manager json - 1.33.0",
    ),
    (
        "kubermatic/gcp-1.24.0-controller-manager.yaml",
        "kube-controller-manager json gce 1.24.0",
    ),
    (
        "kubermatic/gcp-1.29.0-gcp-cloud-controller-manager-externalCloudProvider.yaml",
        "",
    ),
    (
        "kubermatic/openstack-1.22.1-controller-manager-externalCloudProvider.yaml",
        "kube-controller-manager json - 1.22.1",
    ),
    (
        "kubermatic/openstack-1.22.1-controller-manager.yaml",
        "kube-controller-manager json openstack 1.22.1",
    ),
    (
        "kubermatic/vsphere-1.22.1-controller-manager.yaml",
        "kube-controller-manager json vsphere 1.22.1",
    ),
    (
        "kubermatic/vsphere-1.36.0-vsphere-cloud-controller-manager-externalCloudProvider.yaml",
        "",
    ),
    ("not-control-plane/cluster-autoscaler-aws.yaml", ""),
    ("not-control-plane/ebs-csi-controller.yaml", ""),
    ("not-control-plane/kube-controller-manager-operator.yaml", ""),
    (
        "openshift/kube-controller-manager-operand-pod.yaml",
        "kube-controller-manager script ? -",
    ),
    (
        "openshift/release-4.2-kube-apiserver-operand-pod.yaml",
        "kube-apiserver script ? -",
    ),
    (
        "openshift/release-4.5-kube-controller-manager-operand-pod.yaml",
        "kube-controller-manager script ? -",
    ),
    (
        "openshift/release-4.7-kube-apiserver-operand-pod.yaml",
        "kube-apiserver script ? -",
    ),
    (
        "openshift/release-4.7-kube-controller-manager-operand-pod.yaml",
        "kube-controller-manager script ? -",
    ),
    (
        "openshift/release-4.8-aws-cloud-controller-manager.yaml",
        "aws-cloud-controller-manager args aws 1.19.0",
    ),
    (
        "openshift/release-4.9-aws-cloud-controller-manager.yaml",
        "aws-cloud-controller-manager script ? -",
    ),
    ("openshift/release-4.9-azure-cloud-controller-manager.yaml", ""),
    ("openshift/release-4.9-azure-cloud-node-manager.yaml", ""),
    ("rke2/kube-apiserver-1.32.11.yaml", "kube-apiserver both - 1.32.11"),
    (
        "rke2/kube-controller-manager-1.32.11.yaml",
        "kube-controller-manager both - 1.32.11",
    ),
];
