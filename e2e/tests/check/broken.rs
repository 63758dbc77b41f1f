//! Broken clusters on a real API server: each has its code, and no other error.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::{Value, json};

use super::{codes, outrigger, set_ready, text};

/// The objects of a cluster.
struct Cluster {
    nodes: [Value; 2],
    /// The kube-controller-manager of the first Node.
    pod: Value,
    lease: Value,
    registration: Option<Value>,
    migration: Option<Value>,
    /// Of the migration.
    status: Value,
    volume: Option<Value>,
    has_driver: bool,
}

type Break = fn(&mut Cluster);

const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// The kubelet's annotation about the volumes that it hands to CSI drivers.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

const FAULTS: &[(&str, Break)] = &[
    ("OUT201", |cluster| cluster.condition("PhaseFollowed", "False")),
    ("OUT202", |cluster| cluster.condition("Stalled", "True")),
    ("OUT203", |cluster| cluster.migration = Some(migration())),
    ("OUT204", |cluster| cluster.condition("SpecValid", "False")),
    ("OUT208", |cluster| {
        let url = json!({"url": "https://127.0.0.1:1/mutate"});
        cluster.registration = Some(registration(&url));
    }),
    ("OUT211", |cluster| {
        let service =
            json!({"service": {"name": "outrigger-webhook", "namespace": "outrigger-system"}, "caBundle": "eA=="});
        cluster.registration = Some(registration(&service));
    }),
    ("OUT213", |cluster| cluster.condition("WebhookRegistered", "False")),
    ("OUT214", |cluster| cluster.condition("AdoptionClean", "False")),
    ("OUT302", |cluster| {
        cluster.command(&["sh", "-c", "exec kube-controller-manager $(cat /etc/flags)"]);
    }),
    ("OUT305", |cluster| cluster.flag("--leader-elect=false")),
    ("OUT306", |cluster| {
        cluster.flag("--leader-migration-config=/etc/migration.yaml")
    }),
    ("OUT307", |cluster| {
        cluster.lease["spec"]["leaseDurationSeconds"] = json!(8)
    }),
    ("OUT309", |cluster| {
        cluster.pod["spec"]["containers"][0]["image"] = json!("registry.k8s.io/kube-controller-manager:v1.27.16");
    }),
    ("OUT401", |cluster| cluster.nodes[1]["spec"] = json!({})),
    ("OUT402", |cluster| {
        cluster.nodes[1]["metadata"]["labels"]["kubernetes.io/hostname"] = json!("ip-10-0-1-2");
    }),
    ("OUT411", |cluster| {
        cluster.nodes[1]["spec"] = cluster.nodes[0]["spec"].clone()
    }),
    // The last two: a volume is protected from deletion.
    ("OUT312", |cluster| {
        cluster.volume = Some(volume());
        cluster.has_driver = true;
        cluster.flag("--feature-gates=CSIMigrationAWS=false");
    }),
    ("OUT404", |cluster| cluster.volume = Some(volume())),
];

pub async fn each_has_its_code(admin: &Client, config: &Path) -> Result<()> {
    remove_all(admin).await?;
    Cluster::in_order().create(admin).await?;
    ensure!(
        errors(config)?.is_empty(),
        "errors of a cluster in order: {:?}",
        errors(config)?
    );

    for (code, fault) in FAULTS {
        remove_all(admin).await?;
        let mut cluster = Cluster::in_order();
        fault(&mut cluster);
        cluster.create(admin).await.with_context(|| (*code).to_owned())?;
        let found = errors(config)?;
        ensure!(found == [*code], "{found:?} in place of {code}");
    }

    Ok(())
}

/// The codes of severity error.
fn errors(config: &Path) -> Result<Vec<String>> {
    let output = outrigger(&["check", "--kubelets=none", "-o", "json"], config)?;
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| text(&output).1)?;
    let codes = codes(&report, |finding| finding["severity"] == "error")?;
    ensure!(
        output.status.code() == Some(if codes.is_empty() { 0 } else { 2 }),
        "{codes:?}: {}",
        output.status
    );
    Ok(codes)
}

impl Cluster {
    fn in_order() -> Self {
        let node = |name: &str, labels: Value| {
            let mut labels = labels;
            labels["kubernetes.io/hostname"] = json!(name);
            json!({
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": format!("aws:///eu-central-1a/i-0123456789abcdef{}", name.len())},
            })
        };
        Self {
            nodes: [
                node("cp-1", json!({"node-role.kubernetes.io/control-plane": ""})),
                node("worker-1", json!({})),
            ],
            pod: json!({
                "metadata": {
                    "name": "kube-controller-manager-cp-1", "namespace": "kube-system",
                    "annotations": {"kubernetes.io/config.mirror": "x"},
                },
                "spec": {
                    "nodeName": "cp-1", "hostNetwork": true,
                    "containers": [{
                        "name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
                        "command": ["kube-controller-manager", "--cloud-provider=aws"],
                    }],
                },
            }),
            lease: json!({
                "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
                "spec": {"holderIdentity": "cp-1_x", "leaseDurationSeconds": 15, "renewTime": micro_time()},
            }),
            registration: None,
            migration: None,
            status: Value::Null,
            volume: None,
            has_driver: false,
        }
    }

    fn command(&mut self, words: &[&str]) {
        self.pod["spec"]["containers"][0]["command"] = json!(words);
    }

    fn flag(&mut self, flag: &str) {
        self.command(&["kube-controller-manager", "--cloud-provider=aws", flag]);
    }

    /// A migration that a manager observes.
    fn condition(&mut self, name: &str, status: &str) {
        self.migration = Some(migration());
        self.status = json!({
            "observedBy": {"identity": "cp-1_a", "time": seconds()},
            "conditions": [{
                "type": name, "status": status, "reason": "Because", "message": "the reason",
                "lastTransitionTime": seconds(),
            }],
        });
    }

    async fn create(&self, admin: &Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(admin.clone());
        for node in &self.nodes {
            create(&nodes, node).await?;
            let csi_node = json!({
                "metadata": {"name": node["metadata"]["name"], "annotations": {MIGRATED: "kubernetes.io/aws-ebs"}},
                "spec": {"drivers": []},
            });
            create(&Api::<CSINode>::all(admin.clone()), &csi_node).await?;
            set_ready(&nodes, node["metadata"]["name"].as_str().context("a name")?, "True").await?;
        }
        create(&Api::<Pod>::namespaced(admin.clone(), "kube-system"), &self.pod).await?;
        create(&Api::<Lease>::namespaced(admin.clone(), "kube-system"), &self.lease).await?;
        if let Some(registration) = &self.registration {
            create(&Api::<MutatingWebhookConfiguration>::all(admin.clone()), registration).await?;
        }
        if let Some(volume) = &self.volume {
            let volumes: Api<PersistentVolume> = Api::all(admin.clone());
            let force = PatchParams::apply("test").force();
            volumes.patch("ebs", &force, &Patch::Apply(volume)).await?;
        }
        if self.has_driver {
            let driver = json!({"metadata": {"name": EBS_DRIVER}, "spec": {"attachRequired": true}});
            create(&Api::<CSIDriver>::all(admin.clone()), &driver).await?;
        }
        if let Some(migration) = &self.migration {
            let migrations: Api<CloudProviderMigration> = Api::all(admin.clone());
            create(&migrations, migration).await?;
            let status = Patch::Merge(json!({"status": self.status}));
            migrations
                .patch_status("cluster", &PatchParams::default(), &status)
                .await?;
        }

        Ok(())
    }
}

fn volume() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "ebs"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": EBS_DRIVER, "volumeHandle": "vol-1"},
        },
    })
}

fn seconds() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn migration() -> Value {
    json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": "cluster"}, "spec": {"clusterID": "cluster", "phase": "InTree", "targets": []},
    })
}

/// It matches nothing, so the API server never calls it.
fn registration(client_config: &Value) -> Value {
    json!({
        "metadata": {"name": "outrigger"},
        "webhooks": [{
            "name": "nodes.outrigger.dev", "clientConfig": client_config, "rules": [],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        }],
    })
}

async fn create<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object.clone())?;
    api.create(&PostParams::default(), &object).await.map(drop)?;
    Ok(())
}

async fn remove_all(admin: &Client) -> Result<()> {
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    Api::<Node>::all(admin.clone()).delete_collection(&now, &all).await?;
    Api::<Pod>::namespaced(admin.clone(), "kube-system")
        .delete_collection(&now, &all)
        .await?;
    Api::<Lease>::namespaced(admin.clone(), "kube-system")
        .delete_collection(&now, &all)
        .await?;
    Api::<MutatingWebhookConfiguration>::all(admin.clone())
        .delete_collection(&now, &all)
        .await?;
    Api::<CSINode>::all(admin.clone()).delete_collection(&now, &all).await?;
    Api::<CSIDriver>::all(admin.clone())
        .delete_collection(&now, &all)
        .await?;
    Api::<CloudProviderMigration>::all(admin.clone())
        .delete_collection(&now, &all)
        .await?;
    Ok(())
}
