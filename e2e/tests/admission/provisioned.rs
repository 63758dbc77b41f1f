//! Provisioners make command lines from their objects, which is imitated here: kubeadm writes each extra argument as a
//! flag, Kamaji appends its list. The real kube-controller-manager runs with the outcome.

use anyhow::{Result, bail, ensure};
use outrigger_cluster_harness::cluster::Version;
use outrigger_environment::manifests;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::components::{LEASES, LEFT_OVER, MIGRATION_LEASE, all_start, delete, holder, newest_flags, start};
use crate::definitions;
use crate::objects::{CLUSTER_LABEL, flag, is_on};
use crate::phases;

const NAME: &str = "provisioned";
const CLUSTER_API: &str = "controlplane.cluster.x-k8s.io";
const KAMAJI: &str = "kamaji.clastix.io";

/// How an object holds the arguments of its kube-controller-manager.
struct Shape {
    name: &'static str,
    collection: String,
    object: fn(&[String], &str) -> Value,
    arguments: &'static str,
}

fn shapes() -> [Shape; 3] {
    let path = |group: &str, version: &str, plural: &str| format!("/apis/{group}/{version}/namespaces/{NAME}/{plural}");
    let kubeadm = "/spec/kubeadmConfigSpec/clusterConfiguration/controllerManager/extraArgs";
    [
        Shape {
            name: "kubeadm-map",
            collection: path(CLUSTER_API, "v1beta1", "kubeadmcontrolplanes"),
            object: |flags, version| kubeadm_control_plane("v1beta1", pairs(flags).collect(), version),
            arguments: kubeadm,
        },
        Shape {
            name: "kubeadm-named",
            collection: path(CLUSTER_API, "v1beta2", "kubeadmcontrolplanes"),
            object: |flags, version| {
                let named = pairs(flags).map(|(name, value)| json!({"name": name, "value": value}));
                kubeadm_control_plane("v1beta2", named.collect(), version)
            },
            arguments: kubeadm,
        },
        Shape {
            name: "kamaji",
            collection: path(KAMAJI, "v1alpha1", "tenantcontrolplanes"),
            object: |flags, version| {
                json!({
                    "apiVersion": format!("{KAMAJI}/v1alpha1"), "kind": "TenantControlPlane",
                    "spec": {"kubernetes": {"version": version}, "controlPlane": {"deployment": {"extraArgs": {"controllerManager": flags}}}},
                })
            },
            arguments: "/spec/controlPlane/deployment/extraArgs/controllerManager",
        },
    ]
}

/// Names without dashes, and values.
fn pairs(flags: &[String]) -> impl Iterator<Item = (String, Value)> {
    let split = flags
        .iter()
        .filter_map(|flag| flag.trim_start_matches("--").split_once('='));
    split.map(|(name, value)| (name.to_owned(), json!(value)))
}

fn kubeadm_control_plane(api: &str, arguments: Value, version: &str) -> Value {
    json!({
        "apiVersion": format!("{CLUSTER_API}/{api}"), "kind": "KubeadmControlPlane",
        "spec": {
            "version": version,
            "machineTemplate": {"infrastructureRef": {"kind": "AWSMachineTemplate", "name": NAME}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"controllerManager": {"extraArgs": arguments}}},
        },
    })
}

/// The flags that a provisioner makes of the arguments.
fn as_flags(arguments: &Value) -> Result<Vec<String>> {
    let named = |entry: &Value| {
        entry
            .as_str()
            .map(str::to_owned)
            .or_else(|| Some(format!("--{}={}", entry["name"].as_str()?, entry["value"].as_str()?)))
    };
    let flags: Option<Vec<String>> = match arguments {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| Some(format!("--{name}={}", value.as_str()?)))
            .collect(),
        Value::Array(list) => list.iter().map(named).collect(),
        _ => None,
    };
    match flags {
        Some(flags) => Ok(flags),
        None => bail!("these are no arguments: {arguments}"),
    }
}

pub async fn components_start_with_what_their_objects_say(bench: &Bench) -> Result<()> {
    let definitions = [
        manifests::open_definition(
            CLUSTER_API,
            "KubeadmControlPlane",
            "kubeadmcontrolplanes",
            true,
            &["v1beta1", "v1beta2"],
        ),
        manifests::open_definition(KAMAJI, "TenantControlPlane", "tenantcontrolplanes", true, &["v1alpha1"]),
    ];
    definitions::serve(bench, &definitions).await?;
    bench.namespace(NAME, &json!({})).await?;
    let selector = json!({"matchLabels": {CLUSTER_LABEL: NAME}});
    let target = |profile: &str| json!({"profile": profile, "namespaceSelector": selector, "objectSelector": selector});
    let targets = json!([target("HostedControlPlane"), target("ClusterAPI")]);
    bench
        .migration(NAME, json!({"targets": targets, "phase": "Prepare"}))
        .await?;
    if bench.version == Version::V1_26 {
        in_phase(bench, "prepare").await?;
        delete(bench, &format!("{LEASES}/{MIGRATION_LEASE}")).await?;
    }
    bench.change(NAME, json!({"phase": "Migrate"})).await?;
    bench.set_prepared(NAME, "True").await?;
    in_phase(bench, "migrate").await?;
    definitions::withdraw(bench, &definitions).await
}

/// Every shape's manager runs with what is stored for it in this phase, and one of them leads.
async fn in_phase(bench: &Bench, phase: &str) -> Result<()> {
    let oldest = bench.version == Version::V1_26;
    let (own, clouds, version) = if oldest {
        let (clouds, own): (Vec<_>, Vec<_>) = phases::original(bench)?
            .into_iter()
            .partition(|flag| flag.starts_with("--cloud-"));
        (own, clouds, "v1.26.13")
    } else {
        (newest_flags(bench)?, LEFT_OVER.map(str::to_owned).to_vec(), "v1.36.0")
    };
    let mut running = Vec::new();
    for shape in shapes() {
        let mut object = (shape.object)(&clouds, version);
        object["metadata"] =
            json!({"name": format!("{}-{phase}", shape.name), "namespace": NAME, "labels": {CLUSTER_LABEL: NAME}});
        let stored = bench.create(&shape.collection, &object).await?.granted()?.body;
        let arguments = as_flags(stored.pointer(shape.arguments).unwrap_or(&Value::Null))?;
        if phase == "prepare" {
            ensure!(
                is_on(&arguments, "enable-leader-migration"),
                "{}: {arguments:?}",
                shape.name
            );
            ensure!(
                flag(&arguments, "cloud-provider") == Some("aws"),
                "{}: {arguments:?}",
                shape.name
            );
        } else {
            ensure!(
                arguments == ["--cloud-provider=external"],
                "{}: {arguments:?}",
                shape.name
            );
        }
        running.push(start(
            bench,
            &format!("{}-{phase}", shape.name),
            [own.clone(), arguments].concat(),
        )?);
    }
    all_start(bench, &running).await?;
    bench
        .until("one of them leads", async || {
            Ok(holder(bench, "kube-controller-manager").await?.is_some())
        })
        .await?;
    if phase == "prepare" {
        bench
            .until("the leader holds the migration lease", async || {
                Ok(holder(bench, MIGRATION_LEASE).await? == holder(bench, "kube-controller-manager").await?)
            })
            .await?;
    }
    drop(running);
    delete(bench, &format!("{LEASES}/kube-controller-manager")).await
}
