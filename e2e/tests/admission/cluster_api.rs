//! An owner of Cluster API's objects (a topology, Git) applies its original while the webhook is away: the write is refused,
//! so no machine gets the in-tree provider in a phase that forbids it.

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::definitions;
use crate::objects::CLUSTER_LABEL;

const NAME: &str = "cluster-api";
const CONTROL_PLANE: &str =
    "/apis/controlplane.cluster.x-k8s.io/v1beta1/namespaces/cluster-api/kubeadmcontrolplanes/one";
const CONFIGS: &str = "/apis/bootstrap.cluster.x-k8s.io/v1beta1/namespaces/cluster-api/kubeadmconfigs";
const FLAGS: &str = "/spec/kubeadmConfigSpec/clusterConfiguration/controllerManager/extraArgs";

pub async fn an_original_waits_for_the_webhook(bench: &mut Bench) -> Result<()> {
    let definitions = [
        with_status("controlplane", "KubeadmControlPlane", "kubeadmcontrolplanes"),
        with_status("bootstrap", "KubeadmConfig", "kubeadmconfigs"),
    ];
    definitions::serve(bench, &definitions).await?;
    bench.namespace(NAME, &json!({})).await?;
    let selector = json!({"matchLabels": {CLUSTER_LABEL: NAME}});
    let targets = json!([{"profile": "ClusterAPI", "namespaceSelector": selector, "objectSelector": selector}]);
    bench
        .migration(NAME, json!({"targets": targets, "phase": "Migrate"}))
        .await?;
    bench.set_prepared(NAME, "True").await?;
    let stored = apply_original(bench).await?.granted()?.body;
    ensure!(
        stored.pointer(FLAGS) == Some(&json!({"cloud-provider": "external"})),
        "{stored}"
    );

    bench.kill_webhook().await?;
    while_it_is_away(bench, &stored).await.context("away")?;
    bench.start_webhook_again().await?;

    let again = apply_original(bench).await?.granted()?.body;
    ensure!(
        again["spec"] == stored["spec"] && again["metadata"]["generation"] == stored["metadata"]["generation"],
        "{again}"
    );
    bench.create(CONFIGS, &machine_configuration()).await?.granted()?;
    definitions::withdraw(bench, &definitions).await
}

async fn while_it_is_away(bench: &Bench, stored: &Value) -> Result<()> {
    let refused = [
        ("cluster-api-control-planes.outrigger.dev", apply_original(bench).await?),
        (
            "cluster-api-bootstrap.outrigger.dev",
            bench.create(CONFIGS, &machine_configuration()).await?,
        ),
    ];
    for (entry, answer) in refused {
        ensure!(
            answer.code == 500 && answer.message().contains(entry),
            "{entry}: {answer:?}"
        );
    }

    // The alert OutriggerWebhookBlocksWrites reads it.
    let metrics = bench.metrics_of_the_api_server().await?;
    let counted = |line: &str| {
        let labels = [
            r#"error_type="calling_webhook_error""#,
            r#"name="cluster-api-bootstrap.outrigger.dev""#,
        ];
        line.starts_with("apiserver_admission_webhook_rejection_count{")
            && labels.iter().all(|label| line.contains(label))
    };
    ensure!(metrics.lines().any(counted), "the API server does not count it");

    let status = json!({"status": {"replicas": 3}});
    bench.merge(&format!("{CONTROL_PLANE}/status"), &status).await?;
    let now = bench.read(CONTROL_PLANE).await?;
    ensure!(now["spec"] == stored["spec"] && now["status"]["replicas"] == 3, "{now}");
    Ok(())
}

/// As the topology controller does.
async fn apply_original(bench: &Bench) -> Result<review::Answer> {
    let arguments = json!({"extraArgs": {"cloud-provider": "aws"}});
    let original = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane",
        "metadata": {"name": "one", "namespace": NAME, "labels": {CLUSTER_LABEL: NAME}},
        "spec": {
            "version": "v1.26.13",
            "machineTemplate": {"infrastructureRef": {"kind": "AWSMachineTemplate", "name": "one"}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"controllerManager": arguments}},
        },
    });
    let path = format!("{CONTROL_PLANE}?fieldManager=capi-topology&force=true");
    review::send(&bench.admin, Method::PATCH, &path, Some((review::APPLY, &original))).await
}

fn machine_configuration() -> Value {
    json!({
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfig",
        "metadata": {"name": "worker", "namespace": NAME},
        "spec": {"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": {"cloud-provider": "aws"}}}},
    })
}

fn with_status(group: &str, kind: &str, plural: &str) -> Value {
    let group = format!("{group}.cluster.x-k8s.io");
    let mut definition = manifests::open_definition(&group, kind, plural, true, &["v1beta1"]);
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    definition
}
