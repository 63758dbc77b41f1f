//! The manager as a static Pod (`manifests/overlays/static-pod`): a real kubelet starts it from its file, as
//! `docs/guides/install.md` describes it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::{InTreeCluster, SOON, import_image};
use outrigger_environment::manifests;
use outrigger_machines::{Fleet, Machine, real_kubelets};
use serde_json::{Value, json};

const CLUSTER_ID: &str = "static-pod";
const IMAGE: &str = "registry.example.com/outrigger";
const NAME: &str = "outrigger-manager";
const FOLDER: &str = "/etc/kubernetes/outrigger-manager";
const MANIFEST: &str = "/etc/kubernetes/manifests/outrigger-manager.yaml";
/// The user of the image.
const NONROOT: u32 = 65532;

#[test]
fn a_kubelet_starts_the_manager_from_its_file_and_the_manager_takes_its_lease() -> Result<()> {
    real_kubelets(1, async move |fleet| {
        let cluster = InTreeCluster::start(fleet, CLUSTER_ID).await?;
        let tools = Tools::load(&[Tool::Kustomize]).await?;
        cluster.apply(fleet, rights(&tools, fleet).await?).await?;
        import_image(fleet, IMAGE).await?;
        let pod = pod(&tools, fleet, &cluster).await?;
        let machine = &fleet.machines()[0];

        configure(machine, &cluster)?;
        machine.write(MANIFEST, pod.to_string())?;

        is_ready(machine, &cluster).await?;
        let holder = cluster.holder(fleet, "cloud-controller-manager").await?;
        ensure!(holder == 0, "machine {holder}");
        Ok(())
    })
}

/// The rights of the manager and the definition, from the cluster's part.
async fn rights(tools: &Tools, fleet: &Fleet) -> Result<Vec<Value>> {
    let mut objects = manifests::render(tools, fleet.folder(), "cluster", "overlays/static-pod/cluster", "").await?;
    objects.retain(|object| {
        let is_access = object["apiVersion"] == "rbac.authorization.k8s.io/v1";
        let of_webhook = object["metadata"]["namespace"] == "outrigger-system";
        (is_access && !of_webhook) || object["kind"] == "CustomResourceDefinition"
    });
    Ok(objects)
}

/// The machine's part with the image, and with the patches that an operator adds. Credentials in the environment stand for
/// the role of the instance.
async fn pod(tools: &Tools, fleet: &Fleet, cluster: &InTreeCluster) -> Result<Value> {
    let values = cluster.chart_values(CLUSTER_ID);
    let operations = json!([
        {"op": "add", "path": "/spec/containers/0/args/-", "value": "--cluster-name=kubernetes"},
        {"op": "add", "path": "/spec/containers/0/args/-", "value": format!("--cluster-id={CLUSTER_ID}")},
        {"op": "add", "path": "/spec/containers/0/args/-", "value": format!("--cloud-config={FOLDER}/cloud.conf")},
        {"op": "add", "path": "/spec/containers/0/env", "value": values["manager"]["env"]},
    ]);
    let patches = json!([{"target": {"kind": "Pod", "name": NAME}, "patch": operations.to_string()}]);
    let images = json!([{"name": NAME, "newName": IMAGE, "newTag": env!("CARGO_PKG_VERSION")}]);

    let overlay = format!("images: {images}\npatches: {patches}\n");
    let objects = manifests::render(
        tools,
        fleet.folder(),
        "machine",
        "overlays/static-pod/machine",
        &overlay,
    )
    .await?;
    objects.into_iter().next().context("the machine's part is empty")
}

/// The folder that the Pod mounts, which only its user reads.
fn configure(machine: &Machine, cluster: &InTreeCluster) -> Result<()> {
    let server = format!("https://{}:6443", machine.address());
    let kubeconfig = cluster.cluster.kubeconfig_of(&User::new(NAME), &server)?;
    for (name, content) in [
        ("kubeconfig", kubeconfig.to_string()),
        ("cloud.conf", cluster.cloud.configuration.clone()),
    ] {
        let path = format!("{FOLDER}/{name}");
        machine.write(&path, content)?;
        only_for_its_user(machine, &path, 0o400)?;
    }
    only_for_its_user(machine, FOLDER, 0o700)
}

fn only_for_its_user(machine: &Machine, path: &str, mode: u32) -> Result<()> {
    let file = machine.file(path);
    chown(&file, Some(NONROOT), Some(NONROOT))?;
    fs::set_permissions(&file, Permissions::from_mode(mode)).with_context(|| path.to_owned())
}

/// Waits until the mirror Pod is ready.
async fn is_ready(machine: &Machine, cluster: &InTreeCluster) -> Result<()> {
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), "kube-system");
    let name = format!("{NAME}-{}", machine.name());
    let ready = async || {
        let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        if conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            Ok(())
        } else {
            Err(format!("{:?}", status.container_statuses))
        }
    };
    Ok(until(&format!("{name} is ready"), SOON, ready).await?)
}
