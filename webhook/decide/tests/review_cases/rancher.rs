//! Clusters of Rancher and of the Cluster API provider for RKE2, K3s and Kamaji.

use super::{
    Case,
    Expectation::{Because, Changed, Has, Lacks, NotOurs, Refused, Silent, Unchanged, Warns},
    MigrationState::{Complete, InTree, Migrate, NotPrepared, Prepare},
    row, update,
};

pub(super) fn cases() -> Vec<Case> {
    [rke2(), rke1_and_k3s(), caprke2(), hosted()].concat()
}

fn rke2() -> Vec<Case> {
    const M: &str = "mig-rke2.yaml";
    const SPLITS: &str = "50-rke2-splits.yaml";
    const CUSTOM: &str = "51-rke2-customnodes.yaml";
    const POOLS: &str = "52-rke2-pools.yaml";
    const NAMES: &str = "by hostname -f where the instance requires tokens";
    const GLOBAL: &str = "machineGlobalConfig/";
    vec![
        row(
            SPLITS,
            M,
            Prepare,
            &[
                Changed,
                Has("machineSelectorConfig/1/config/kube-controller-manager-arg/1: enable-leader-migration"),
                Lacks("enable-leader-migration=true"),
                Warns("the chart in additionalManifest is not changed"),
                Warns("kubelet-arg of machineSelectorConfig[0] replaces"),
                Warns(NAMES),
            ],
        ),
        row(
            SPLITS,
            M,
            Migrate,
            &[
                Changed,
                Has("machineSelectorConfig/0/config/kubelet-arg/1: cloud-provider=external"),
                Has("machineSelectorConfig/2/config/kubelet-arg/1: cloud-provider=external"),
                Has("machineGlobalConfig/kubelet-arg/1: cloud-provider=external"),
                Has("disable-cloud-controller: true"),
                Lacks("arg/1: enable-leader-migration"),
            ],
        ),
        row(
            CUSTOM,
            M,
            Prepare,
            &[
                Changed,
                Has("machineGlobalConfig/kube-controller-manager-arg/0: enable-leader-migration"),
                Warns("disable-cloud-controller stands beside config in machineSelectorConfig[0]"),
                Warns(NAMES),
            ],
        ),
        row(
            CUSTOM,
            M,
            Migrate,
            &[
                Changed,
                Has("machineGlobalConfig/cloud-provider-name: aws"),
                Has("machineGlobalConfig/disable-cloud-controller: true"),
                Warns(NAMES),
            ],
        ),
        row(
            POOLS,
            M,
            Prepare,
            &[
                Changed,
                Has("kube-controller-manager-arg/0: enable-leader-migration"),
                Warns(NAMES),
            ],
        ),
        // Machines of pools keep the name by which AWS knows their Nodes.
        row(
            POOLS,
            M,
            Migrate,
            &[
                Changed,
                Has("cloud-provider-name: aws"),
                Has("kube-controller-manager-arg/0: cloud-provider=external"),
                Has("kubelet-arg/0: cloud-provider=external"),
                Lacks("kube-apiserver-arg"),
            ],
        ),
        row(
            POOLS,
            M,
            Complete,
            &[
                Changed,
                Warns("kube-apiserver of RKE2 before 1.29.11, 1.30.7, 1.31.3 ends with it"),
            ],
        ),
        update(
            "52b.yaml",
            POOLS,
            M,
            Complete,
            &[Changed, Has("kube-apiserver-arg/0: cloud-provider=external")],
        ),
        row(
            "52b.yaml",
            M,
            InTree,
            &[Unchanged, Warns("in 1.30.4 these do not start with the provider aws")],
        ),
        row(
            "52b.yaml",
            M,
            Prepare,
            &[Refused, Warns("1.26 is the last version"), Warns("kube-apiserver")],
        ),
        row(
            "52b.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("kube-apiserver-arg/0: cloud-provider=external"),
                Has("cloud-provider-name: aws"),
                Silent("do not start"),
            ],
        ),
        // The override above an effective aws stays.
        row(
            "53-rke2-130.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("kube-apiserver-arg/0: cloud-provider=external"),
                Has("machineGlobalConfig/kubelet-arg/0: cloud-provider=external"),
                Silent("embedded cloud controller"),
            ],
        ),
        row(
            "53-rke2-130.yaml",
            M,
            Complete,
            &[Changed, Has("kube-apiserver-arg/0: cloud-provider=external")],
        ),
        row("53b-rke2-pools-129.yaml", M, Prepare, &[Unchanged, Silent("")]),
        row("53b-rke2-pools-129.yaml", M, Migrate, &[Unchanged, Silent("")]),
        row(
            "53b-rke2-pools-129.yaml",
            M,
            Complete,
            &[
                Unchanged,
                Silent(""),
                Has("kube-apiserver-arg/0: cloud-provider=external"),
            ],
        ),
        row(
            "54-rke2-null-arg.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("kube-controller-manager-arg/2: enable-leader-migration"),
                Warns("kube-controller-manager-arg still sets the feature gate CSIMigrationAWS=false"),
                Has("kubelet-arg+/0: max-pods=100"),
            ],
        ),
        row(
            "54-rke2-null-arg.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has(GLOBAL),
                Has("kube-controller-manager-arg/1: cloud-provider=external"),
                Lacks("arg/0: cloud-config"),
                Has("kubelet-arg+/0: max-pods=100"),
                Warns("still sets the feature gate"),
            ],
        ),
    ]
}

fn rke1_and_k3s() -> Vec<Case> {
    const M: &str = "mig-rke1.yaml";
    const NAME: &str = "remove hostname-override from services.kubelet before Migrate";
    const GATE: &str = "services.kubeController still sets the feature gate CSIMigrationAWS=false";
    vec![
        row(
            "55-rke1.yaml",
            M,
            Prepare,
            &[
                Changed,
                Has("kubeController/extraArgs/enable-leader-migration: true"),
                Warns(NAME),
                Warns(GATE),
            ],
        ),
        row(
            "55-rke1.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("cloudProvider/name: external-aws"),
                Has("useInstanceMetadataHostname: true"),
                Warns(NAME),
                Warns(GATE),
                Lacks("leader-migration"),
            ],
        ),
        // A file of the RKE tool is no object of an API server.
        row("56-rke1-clusteryml.yaml", M, Prepare, &[NotOurs]),
        row("56-rke1-clusteryml.yaml", M, Migrate, &[NotOurs]),
        row(
            "57-k3s.yaml",
            "mig-rke2.yaml",
            Prepare,
            &[Changed, Has("kube-controller-manager-arg/1: enable-leader-migration")],
        ),
        row(
            "57-k3s.yaml",
            "mig-rke2.yaml",
            Migrate,
            &[
                Changed,
                Has("kube-controller-manager-arg/0: cloud-provider=external"),
                Has("kubelet-arg/0: cloud-provider=external"),
                Has("disable-cloud-controller: true"),
                Lacks("cloud-provider-name"),
            ],
        ),
    ]
}

fn caprke2() -> Vec<Case> {
    let mut cases = Vec::new();
    for at in [Prepare, NotPrepared, Migrate, Complete] {
        // A component that is external already is not rolled again, and the API server keeps its override.
        cases.push(row(
            "58-caprke2.yaml",
            "mig-capi.yaml",
            at,
            &[
                Unchanged,
                Silent(""),
                Has("kubeAPIServer/extraArgs/0: --cloud-provider=external"),
            ],
        ));
        cases.push(row(
            "59-caprke2-ext.yaml",
            "mig-capi.yaml",
            at,
            &[Unchanged, Silent("")],
        ));
    }
    cases
}

fn hosted() -> Vec<Case> {
    const M: &str = "mig.yaml";
    vec![
        row("96-kthrees.yaml", "mig-capi.yaml", InTree, &[Unchanged]),
        row(
            "96-kthrees.yaml",
            "mig-capi.yaml",
            Prepare,
            &[
                Refused,
                Warns("write the flags of the phase into kthreesConfigSpec.serverConfig"),
            ],
        ),
        row(
            "96-kthrees.yaml#1",
            "mig-capi.yaml",
            Prepare,
            &[
                Changed,
                Has("controllerManager/extraArgs/1: --enable-leader-migration=true"),
            ],
        ),
        row(
            "96-kthrees.yaml#1",
            "mig-capi.yaml",
            Migrate,
            &[Changed, Has("controllerManager/extraArgs/0: --cloud-provider=external")],
        ),
        row(
            "97-kamaji.yaml",
            M,
            Prepare,
            &[Changed, Has("controllerManager/1: --enable-leader-migration=true")],
        ),
        row(
            "97-kamaji.yaml",
            M,
            Migrate,
            &[
                Changed,
                Has("controllerManager/0: --cloud-provider=external"),
                Has("apiServer/0: --cloud-provider=aws"),
            ],
        ),
        row(
            "97-kamaji.yaml",
            M,
            Complete,
            &[Changed, Has("apiServer/0: --cloud-provider=external")],
        ),
        row(
            "97b-kamaji133.yaml",
            M,
            InTree,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row(
            "97b-kamaji133.yaml",
            M,
            Prepare,
            &[Unchanged, Warns("remove --cloud-provider from kube-apiserver")],
        ),
        row("97b-kamaji133.yaml", M, NotPrepared, &[Changed, Lacks("apiServer/0")]),
        row(
            "97b-kamaji133.yaml",
            M,
            Migrate,
            &[Changed, Lacks("apiServer/0"), Because("external from the start")],
        ),
    ]
}
