//! Workloads of a hosted control plane: volumes, leases, API servers, kubelets, and updates.

use super::{
    Case,
    Expectation::{Audited, Because, Changed, Has, Lacks, NotOurs, Refused, Silent, Unchanged, Warns},
    MigrationState::{Complete, InTree, Migrate, NotPrepared, Prepare},
    command_lines::{MIG, moves, stays},
    row, update,
};

pub(super) fn cases() -> Vec<Case> {
    [
        volumes(),
        leases_and_node_ipam(),
        api_servers(),
        kubelets_and_both(),
        reviews(),
    ]
    .concat()
}

fn volumes() -> Vec<Case> {
    const KUBELETS: &str = "set the gate CSIMigrationAWS=true on kubelets too";
    let mut cases = vec![
        row(
            "15-122.yaml",
            MIG,
            Prepare,
            &[Changed, Has(": --enable-leader-migration"), Warns(KUBELETS)],
        ),
        row(
            "15-122.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("--external-cloud-volume-plugin=aws"),
                Has("--cloud-config=/etc/cloud.conf"),
                Has("--cloud-provider=external"),
            ],
        ),
        row("15b-122csi.yaml", MIG, Prepare, &[Changed, Silent(KUBELETS)]),
        row(
            "15b-122csi.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Lacks("volume-plugin"),
                Lacks("--cloud-config"),
                Has("CSIMigrationAWS=true"),
            ],
        ),
        row("16-124nocsi.yaml", MIG, Prepare, &[Changed, Warns(KUBELETS)]),
        row(
            "16-124nocsi.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("--external-cloud-volume-plugin=aws"),
                Has("--cloud-config=/etc/cloud.conf"),
            ],
        ),
    ];
    cases.extend(stays("15c-122-native-external.yaml"));
    cases.push(row(
        "15c-122-native-external.yaml",
        MIG,
        Migrate,
        &[Unchanged, Because("external from the start"), Lacks("volume-plugin")],
    ));
    cases
}

fn leases_and_node_ipam() -> Vec<Case> {
    const IPAM: &str = "mig-ipam.yaml";
    let mut cases = vec![
        row(
            "20-leases.yaml",
            MIG,
            Prepare,
            &[Changed, Warns("set spec.kubeControllerManagerLease: my-kcm")],
        ),
        row(
            "20-leases.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("--leader-elect-resource-name=my-kcm"),
                Has("--cloud-provider=external"),
            ],
        ),
        row(
            "19-nodeipam.yaml",
            IPAM,
            Prepare,
            &[
                Changed,
                Has("--leader-migration-config="),
                Has(": --enable-leader-migration"),
                Lacks("-nodeipam"),
            ],
        ),
        row(
            "19-nodeipam.yaml",
            IPAM,
            NotPrepared,
            &[Changed, Lacks("-nodeipam"), Warns("not Prepared yet")],
        ),
        row(
            "19-nodeipam.yaml",
            IPAM,
            Migrate,
            &[
                Changed,
                Has("--controllers=*,-nodeipam"),
                Has("--cloud-provider=external"),
                Lacks("leader-migration"),
            ],
        ),
    ];
    cases.extend(moves("19-nodeipam.yaml", MIG));
    cases.push(row(
        "19-nodeipam.yaml",
        MIG,
        Migrate,
        &[Changed, Lacks("-nodeipam"), Has("--allocate-node-cidrs=true")],
    ));
    cases
}

fn api_servers() -> Vec<Case> {
    const CONFIG: &str = "--cloud-config=/etc/cloud.conf";
    let mut cases = Vec::new();
    for object in ["21-api-1.26.13-aws.yaml", "21-api-1.28.9-aws.yaml"] {
        cases.extend([
            row(object, MIG, Prepare, &[Unchanged, Silent("")]),
            row(
                object,
                MIG,
                NotPrepared,
                &[Unchanged, Warns("not Prepared yet"), Has("--cloud-provider=aws")],
            ),
            // The API server still opens the file.
            row(
                object,
                MIG,
                Migrate,
                &[Changed, Has("--cloud-provider=external"), Has(CONFIG)],
            ),
        ]);
    }
    for object in ["21-api-1.26.13-external.yaml", "21-api-1.28.9-external.yaml"] {
        cases.extend(stays(object));
    }
    for object in ["21-api-1.29.3-aws.yaml", "21-api-1.32.0-aws.yaml"] {
        cases.extend([
            row(
                object,
                MIG,
                InTree,
                &[Unchanged, Warns("remove --cloud-provider=aws from kube-apiserver")],
            ),
            row(
                object,
                MIG,
                Prepare,
                &[Unchanged, Warns("remove --cloud-provider=aws from kube-apiserver")],
            ),
            row(object, MIG, Migrate, &[Changed, Lacks("--cloud-provider"), Has(CONFIG)]),
        ]);
    }
    for object in ["21-api-1.29.3-external.yaml", "21-api-1.32.0-external.yaml"] {
        cases.extend([
            row(object, MIG, Prepare, &[Unchanged, Silent("")]),
            row(object, MIG, Migrate, &[Changed, Lacks("--cloud-provider"), Has(CONFIG)]),
        ]);
    }
    for object in ["21-api-1.33.1-aws.yaml", "21-api-1.33.1-external.yaml"] {
        cases.extend([
            row(
                object,
                MIG,
                InTree,
                &[
                    Unchanged,
                    Warns("remove --cloud-provider and --cloud-config from kube-apiserver"),
                ],
            ),
            row(
                object,
                MIG,
                Prepare,
                &[
                    Unchanged,
                    Warns("remove --cloud-provider and --cloud-config from kube-apiserver"),
                ],
            ),
            row(
                object,
                MIG,
                Migrate,
                &[
                    Changed,
                    Lacks("--cloud-provider"),
                    Lacks("--cloud-config"),
                    Has("NodeRestriction"),
                ],
            ),
        ]);
    }
    // It is in nobody's way, so it does not wait for the evidence.
    cases.push(row(
        "21-api-1.33.1-external.yaml",
        MIG,
        NotPrepared,
        &[Changed, Lacks("--cloud-provider")],
    ));
    cases
}

fn kubelets_and_both() -> Vec<Case> {
    const NAME: &str = "set --hostname-override to the private DNS name";
    let mut cases = vec![
        row(
            "92-kubelet.yaml",
            MIG,
            Prepare,
            &[Unchanged, Warns(NAME), Warns("remove CSIMigrationAWS=false")],
        ),
        row(
            "92-kubelet.yaml",
            MIG,
            NotPrepared,
            &[Unchanged, Has("--cloud-provider=aws"), Warns("not Prepared yet")],
        ),
        row(
            "92-kubelet.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--cloud-provider=external"), Warns(NAME)],
        ),
        row(
            "91-ds-workerkubelet-windows.yaml",
            MIG,
            Prepare,
            &[Unchanged, Warns(NAME)],
        ),
        row(
            "91-ds-workerkubelet-windows.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("--cloud-provider=external"),
                Has("/command/0: kubelet.exe"),
            ],
        ),
        row(
            "95-ccm-ds.yaml",
            MIG,
            Prepare,
            &[Changed, Has(": --enable-leader-migration"), Has("--cloud-provider=aws")],
        ),
        row(
            "95-ccm-ds.yaml",
            MIG,
            Migrate,
            &[Changed, Has(": --enable-leader-migration"), Has("--cloud-provider=aws")],
        ),
        row("95-ccm-ds.yaml", MIG, Complete, &[Unchanged, Lacks("leader-migration")]),
        row(
            "99-both.yaml",
            MIG,
            InTree,
            &[
                Unchanged,
                Warns("remove --cloud-provider and --cloud-config from kube-apiserver"),
            ],
        ),
        row(
            "99-both.yaml",
            MIG,
            Prepare,
            &[
                Unchanged,
                Warns("remove --cloud-provider and --cloud-config from kube-apiserver"),
            ],
        ),
        row(
            "99-both.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Lacks("containers/0/command/1"),
                Has("containers/1/command/1: --cloud-provider=external"),
            ],
        ),
    ];
    for at in [Prepare, NotPrepared, Migrate, Complete] {
        cases.push(row("80-mirror.yaml", MIG, at, &[NotOurs]));
        cases.push(row(
            "82-deleting.yaml",
            MIG,
            at,
            &[Unchanged, Because("is being deleted")],
        ));
    }
    cases.extend(moves("81-generatename.yaml", MIG));
    cases
}

/// The fields that an update changes decide whether the webhook changes the object.
fn reviews() -> Vec<Case> {
    let mut cases = Vec::new();
    for object in [
        "upd-labels.yaml",
        "upd-paused.yaml",
        "upd-replicas.yaml",
        "upd-status.yaml",
    ] {
        for at in [Prepare, Migrate] {
            cases.push(update(
                object,
                "upd-old.yaml",
                MIG,
                at,
                &[Unchanged, Because("does not change"), Has("--cloud-provider=aws")],
            ));
        }
        cases.push(row(
            object,
            MIG,
            Prepare,
            &[Changed, Has(": --enable-leader-migration")],
        ));
    }
    cases.extend([
        update(
            "upd-apply.yaml",
            "upd-old.yaml",
            MIG,
            Prepare,
            &[Changed, Has(": --enable-leader-migration")],
        ),
        update(
            "upd-apply.yaml",
            "upd-old.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--cloud-provider=external")],
        ),
        update("upd-old.yaml", "upd-old.yaml", MIG, Migrate, &[Unchanged]),
        row(
            "upd-old.yaml",
            "mig2.yaml",
            Prepare,
            &[Refused, Warns("several migrations match: prod, prod2")],
        ),
        row(
            "upd-old.yaml",
            "migaudit.yaml",
            Prepare,
            &[Audited, Warns("enable-leader-migration"), Lacks("leader-migration")],
        ),
        row("upd-old.yaml", "mig-capi.yaml", Prepare, &[NotOurs]),
    ]);
    cases
}
