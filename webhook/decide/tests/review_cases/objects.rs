//! AWS resources, Nodes, charts and Kubermatic's objects.

use super::{
    Case,
    Expectation::{Because, Changed, Has, Lacks, NotOurs, Refused, Silent, Unchanged, Warns},
    MigrationState::{Complete, InTree, Migrate, NotPrepared, Prepare},
    row, update,
};

pub(super) fn cases() -> Vec<Case> {
    [charts(), kubermatic(), tags(), nodes()].concat()
}

fn charts() -> Vec<Case> {
    const HELM: &str = "mig-helm.yaml";
    const SELECTOR: &str = "the chart's nodeSelector matches no node of RKE2";
    const NETWORK: &str = "set hostNetworking: true";
    const ROUTES: &str = "add --configure-cloud-routes=false";
    const TAG: &str = "set image.tag in the values";
    vec![
        row(
            "60-helmchart-noargs.yaml",
            HELM,
            Prepare,
            &[
                Refused,
                Warns(TAG),
                Lacks("leader-migration"),
                Warns(SELECTOR),
                Warns(NETWORK),
                Warns(ROUTES),
            ],
        ),
        row(
            "60-helmchart-noargs.yaml",
            HELM,
            Complete,
            &[Unchanged, Lacks("leader-migration")],
        ),
        row(
            "61-helm-anchor.yaml",
            HELM,
            Prepare,
            &[
                Refused,
                Warns("args (line 4) is an alias of an anchor"),
                Warns("add --enable-leader-migration=true to it by hand"),
            ],
        ),
        row("61-helm-anchor.yaml", HELM, Complete, &[Unchanged]),
        row(
            "62-helm-flow.yaml",
            HELM,
            Prepare,
            &[
                Changed,
                Has("[\"--v=2\", \"--cloud-provider=aws\", \"--enable-leader-migration=true\"]  # flow"),
                Silent(SELECTOR),
                Silent(NETWORK),
            ],
        ),
        row(
            "62-helm-flow.yaml",
            HELM,
            Migrate,
            &[
                Changed,
                Has("--enable-leader-migration=true"),
                Has("--cloud-provider=aws"),
            ],
        ),
        row(
            "63-helm-vendored-chartcontent.yaml",
            HELM,
            Prepare,
            &[Refused, Warns(TAG), Lacks("leader-migration"), Has("SGVsbG8=")],
        ),
        row(
            "64-helm-set.yaml",
            HELM,
            Prepare,
            &[
                Refused,
                Warns("spec.set has \"args[0]\""),
                Warns("move it to args in spec.valuesContent"),
            ],
        ),
        row(
            "64-helm-set.yaml",
            HELM,
            Migrate,
            &[Refused, Warns("spec.set has \"args[0]\"")],
        ),
    ]
}

fn kubermatic() -> Vec<Case> {
    const NEW: &str = "70-kkp-cluster-new.yaml";
    const OLD: &str = "70-kkp-cluster-old.yaml";
    const KKP: &str = "mig-kkp.yaml";
    const NO_DOWNTIME: &str = "mig-kkpnodt.yaml";
    vec![
        update(NEW, OLD, KKP, InTree, &[Unchanged, Silent("")]),
        update(NEW, OLD, KKP, Prepare, &[Unchanged, Silent("")]),
        update(
            NEW,
            OLD,
            KKP,
            Migrate,
            &[
                Changed,
                Has("externalCloudProvider: true"),
                Warns("never allows false again"),
            ],
        ),
        // An operator who accepts the gap does not wait for evidence that Kubermatic cannot give.
        update(
            NEW,
            OLD,
            KKP,
            NotPrepared,
            &[Changed, Has("externalCloudProvider: true")],
        ),
        update(
            NEW,
            OLD,
            NO_DOWNTIME,
            Prepare,
            &[Unchanged, Warns("accept that with spec.downtime: true")],
        ),
        update(
            NEW,
            OLD,
            NO_DOWNTIME,
            Migrate,
            &[
                Refused,
                Warns("Kubermatic has no leader migration"),
                Lacks("externalCloudProvider"),
            ],
        ),
        row(
            OLD,
            KKP,
            Migrate,
            &[
                Unchanged,
                Because("Kubermatic itself decides on the provider of a new cluster"),
            ],
        ),
    ]
}

fn tags() -> Vec<Case> {
    const MACHINES: &str = "71-machinedeployment.yaml";
    const DRIVER: &str = "98-ebs.yaml";
    const BY_LABEL: &str = "mig-aws.yaml";
    const BY_NAME: &str = "mig-kubesystem.yaml";
    vec![
        // kube-system is reached only by a target that names it.
        row(MACHINES, "mig-kkpkubesystem.yaml", Prepare, &[NotOurs]),
        row(MACHINES, BY_LABEL, Prepare, &[NotOurs]),
        row(MACHINES, BY_NAME, InTree, &[Unchanged]),
        row(
            MACHINES,
            BY_NAME,
            Prepare,
            &[Changed, Has("tags/kubernetes.io/cluster/prod: owned"), Has("tags/a: b")],
        ),
        // The driver has no label, and the selectors are about the object's labels, not those of its namespace.
        row(DRIVER, BY_LABEL, Prepare, &[NotOurs]),
        row(DRIVER, BY_NAME, Prepare, &[NotOurs]),
        row(DRIVER, BY_LABEL, Prepare, &[NotOurs]).labelled(),
        row(DRIVER, BY_NAME, InTree, &[Unchanged, Lacks("k8s-tag-cluster-id")]).labelled(),
        row(
            DRIVER,
            BY_NAME,
            Prepare,
            &[Changed, Has("--k8s-tag-cluster-id=prod"), Has("--logging-format=text")],
        )
        .labelled(),
        row(DRIVER, BY_NAME, Migrate, &[Changed, Has("--k8s-tag-cluster-id=prod")]).labelled(),
    ]
}

fn nodes() -> Vec<Case> {
    const WINDOWS: &str = "90-node-windows.yaml";
    const NODES: &str = "mig-nodes.yaml";
    const TAINT: &str = "taints/1/key: node.cloudprovider.kubernetes.io/uninitialized";
    vec![
        row(WINDOWS, NODES, Prepare, &[Unchanged]),
        row(WINDOWS, NODES, NotPrepared, &[Changed, Has(TAINT)]),
        row(WINDOWS, NODES, Migrate, &[Changed, Has(TAINT), Has("taints/0/key: os")]),
        row(WINDOWS, NODES, Complete, &[Changed, Has(TAINT)]),
    ]
}
