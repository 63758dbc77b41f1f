//! The input of kubeadm: its ConfigMaps and the objects of Cluster API.

use super::{
    Case,
    Expectation::{Changed, Has, Lacks, Refused, Silent, Unchanged, Warns},
    MigrationState::{Complete, InTree, Migrate, NotPrepared, Prepare},
    row, update,
};

pub(super) fn cases() -> Vec<Case> {
    [kubeadm(), kubelet_configuration(), machines(), kubeadm_control_planes()].concat()
}

fn kubeadm() -> Vec<Case> {
    const M: &str = "mig-kubeadm.yaml";
    const RUNNING: &str = "running static Pods keep their flags";
    vec![
        row(
            "30-kubeadm-config-anchors.yaml",
            M,
            Prepare,
            &[
                Refused,
                Warns("controllerManager.extraArgs.enable-leader-migration (line 10) is below an alias of an anchor"),
                Warns("add \"true\" by hand"),
            ],
        ),
        row(
            "30-kubeadm-config-anchors.yaml",
            M,
            Migrate,
            &[
                Refused,
                Warns("controllerManager.extraArgs.cloud-provider (line 10) is below an alias of an anchor"),
                Warns("add external by hand"),
            ],
        ),
        row(
            "31-kubeadm-config-v1beta3.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("# keep me"),
                Has("cloud-provider: 'aws'"),
                Has("    enable-leader-migration: "),
                Warns(RUNNING),
            ],
        ),
        row(
            "31-kubeadm-config-v1beta3.yaml",
            M,
            NotPrepared,
            &[
                Changed,
                Has("enable-leader-migration"),
                Lacks("external"),
                Warns("not Prepared yet"),
            ],
        ),
        // The API server follows in Complete, as one object holds both.
        row(
            "31-kubeadm-config-v1beta3.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("    cloud-provider: aws\n"),
                Has("cloud-provider: 'external'"),
                Lacks("cloud-config:"),
                Lacks("leader-migration"),
            ],
        ),
        row(
            "31-kubeadm-config-v1beta3.yaml",
            M,
            Complete,
            &[Changed, Has("    cloud-provider: external\n"), Lacks(" aws")],
        ),
        row(
            "32-kubeadm-config-v1beta4.yaml",
            M,
            Prepare,
            &[Changed, Has("  - name: enable-leader-migration\n    value: \"true\"\n")],
        ),
        row(
            "32-kubeadm-config-v1beta4.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("value: aws\ncontrollerManager:\n  extraArgs:\n  - name: cloud-provider\n    value: external\n"),
                Lacks("cloud-config"),
            ],
        ),
        row(
            "32-kubeadm-config-v1beta4.yaml",
            M,
            Complete,
            &[Changed, Lacks("value: aws")],
        ),
        row(
            "33-kubeadm-config-multidoc.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("mode: ipvs\n---\n# mine\n"),
                Has("{extraArgs: {cloud-provider: aws, enable-leader-migration: \"true\"}}"),
            ],
        ),
        row(
            "33-kubeadm-config-multidoc.yaml",
            M,
            Migrate,
            &[Changed, Has("{extraArgs: {cloud-provider: external}}")],
        ),
        row(
            "34-kubeadm-config-crlf.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("    cloud-provider: aws\r\n    enable-leader-migration: \"true\"\r\n"),
            ],
        ),
        row(
            "34-kubeadm-config-crlf.yaml",
            M,
            Migrate,
            &[Changed, Has("    cloud-provider: external\r\n")],
        ),
        row(
            "37-kubeadm-133.yaml",
            M,
            InTree,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row(
            "37-kubeadm-133.yaml",
            M,
            Prepare,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row(
            "37-kubeadm-133.yaml",
            M,
            NotPrepared,
            &[Changed, Has("apiServer:\n  extraArgs: []\n")],
        ),
        row(
            "37-kubeadm-133.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has(
                    "apiServer:\n  extraArgs: []\ncontrollerManager:\n  extraArgs:\n  - {name: cloud-provider, value: external}",
                ),
            ],
        ),
    ]
}

fn kubelet_configuration() -> Vec<Case> {
    const M: &str = "mig-kubeadm.yaml";
    let mut cases = Vec::new();
    for at in [Prepare, Migrate, Complete] {
        cases.extend([
            row(
                "35-kubelet-config-json.yaml",
                M,
                at,
                &[
                    Unchanged,
                    Warns("cloudProvider, which is not a field"),
                    Warns("cloudConfig, which is not a field"),
                ],
            ),
            row(
                "36-kubelet-config-providerid.yaml",
                M,
                at,
                &[
                    Unchanged,
                    Warns("remove providerID \"aws:///eu-west-1a/i-0123456789abcdef0\""),
                    Warns("remove featureGates.CSIMigrationAWS=false"),
                ],
            ),
        ]);
    }
    cases
}

fn machines() -> Vec<Case> {
    const M: &str = "mig-capi.yaml";
    const CLOUD_INIT: &str = "40-kubeadmconfigtemplate-cloudinit.yaml";
    const IGNITION: &str = "41-kubeadmconfigtemplate-ignition-windows.yaml";
    const OUTSIDE: &str = "change cloud-provider by hand in /spec/template/spec/files/0/content and 1 more";
    vec![
        row(
            CLOUD_INIT,
            M,
            Prepare,
            &[Unchanged, Warns(OUTSIDE), Silent("nodeRegistration.name")],
        ),
        row(
            CLOUD_INIT,
            M,
            Migrate,
            &[
                Changed,
                Warns(OUTSIDE),
                Has("kubeletExtraArgs/cloud-provider: external"),
            ],
        ),
        row(
            CLOUD_INIT,
            "mig-capi126.yaml",
            Migrate,
            &[
                Changed,
                Warns(OUTSIDE),
                Has("kubeletExtraArgs/cloud-provider: external"),
            ],
        ),
        row(
            IGNITION,
            M,
            Prepare,
            &[
                Unchanged,
                Warns("ignition/containerLinuxConfig/additionalConfig"),
                Warns("set nodeRegistration.name in joinConfiguration"),
            ],
        ),
        row(
            IGNITION,
            M,
            Migrate,
            &[
                Changed,
                Warns("ignition/containerLinuxConfig/additionalConfig"),
                Has("kubeletExtraArgs/1/name: cloud-provider"),
                Has("kubeletExtraArgs/1/value: external"),
            ],
        ),
    ]
}

fn kubeadm_control_planes() -> Vec<Case> {
    const M: &str = "mig-capi.yaml";
    const KNOWN: &str = "mig-capi126.yaml";
    const NAME: &str = "set nodeRegistration.name in initConfiguration, joinConfiguration";
    const ARGS: &str = "clusterConfiguration/apiServer/extraArgs";
    const TEMPLATE: &str = "45-kcptemplate.yaml";
    vec![
        row(
            "42-kcp-patches.yaml",
            M,
            Prepare,
            &[
                Changed,
                Warns("/spec/kubeadmConfigSpec/files/0/content"),
                Warns(NAME),
                Has("controllerManager/extraArgs/enable-leader-migration: true"),
            ],
        ),
        row(
            "42-kcp-patches.yaml",
            M,
            Migrate,
            &[
                Changed,
                Warns("/spec/kubeadmConfigSpec/files/0/content"),
                Has("controllerManager/extraArgs/cloud-provider: external"),
                Has("apiServer/extraArgs/cloud-provider: aws"),
            ],
        ),
        row(
            "42-kcp-patches.yaml",
            M,
            Complete,
            &[
                Changed,
                Has("apiServer/extraArgs/cloud-provider: external"),
                Lacks("extraArgs/cloud-provider: aws"),
            ],
        ),
        row(
            "43-kcp-133.yaml",
            M,
            InTree,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row(
            "43-kcp-133.yaml",
            M,
            Prepare,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row("43-kcp-133.yaml", M, NotPrepared, &[Changed, Lacks(ARGS)]),
        row(
            "43-kcp-133.yaml",
            M,
            Migrate,
            &[
                Changed,
                Lacks(ARGS),
                Has("controllerManager/extraArgs/0/value: external"),
            ],
        ),
        row(
            "44-kcp-122.yaml",
            M,
            Prepare,
            &[
                Changed,
                Warns("set the gate CSIMigrationAWS=true on kubelets too"),
                Warns(NAME),
            ],
        ),
        row(
            "44-kcp-122.yaml",
            M,
            Migrate,
            &[
                Refused,
                Warns("an external kubelet of 1.22.17 cannot mount in-tree EBS volumes"),
                Warns("install the EBS CSI driver"),
            ],
        ),
        row(
            TEMPLATE,
            M,
            Prepare,
            &[Refused, Warns("set spec.kubernetesVersion of the migration")],
        ),
        row(
            TEMPLATE,
            KNOWN,
            Prepare,
            &[
                Changed,
                Has("controllerManager/extraArgs/1/name: enable-leader-migration"),
                Warns(NAME),
            ],
        ),
        row(
            TEMPLATE,
            KNOWN,
            Migrate,
            &[
                Changed,
                Has("controllerManager/extraArgs/0/value: external"),
                Lacks("value: aws"),
            ],
        ),
        // Its spec cannot be changed after the creation.
        update(TEMPLATE, TEMPLATE, KNOWN, Prepare, &[Unchanged]),
        row(
            "46-kcp-v1beta2.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("controllerManager/extraArgs/2/name: enable-leader-migration"),
                Has("controllerManager/extraArgs/2/value: true"),
            ],
        ),
        row(
            "46-kcp-v1beta2.yaml",
            M,
            Migrate,
            &[
                Changed,
                Lacks("name: cloud-config"),
                Has("apiServer/extraArgs/0/value: aws"),
                Has("controllerManager/extraArgs/0/value: external"),
            ],
        ),
        row("46-kcp-v1beta2.yaml", M, Complete, &[Changed, Lacks("value: aws")]),
    ]
}
