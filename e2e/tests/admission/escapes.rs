//! Texts with characters that Go's JSON encoder escapes (`<`, `>`, `&`, U+2028): API servers must be able to apply the
//! patches of such objects. A patch that does not apply refuses the write, although the failure policy is Ignore.

use anyhow::{Context, Result, ensure};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::definitions;
use crate::objects::{APPLY, CLUSTER_LABEL};

const NAME: &str = "escapes";
const GROUP: &str = "helm.cattle.io";
const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
/// First lines of the values of a chart.
const VALUES: [(&str, &str); 4] = [
    ("angle-brackets", "# see <https://example.org/a>"),
    ("ampersand", "# requests & limits"),
    ("folded-scalar", "description: >-\n  text"),
    ("line-separator", "# a\u{2028}b\u{2029}c"),
];
const FLAG: &str = "--enable-leader-migration=true";

pub async fn of_go_are_no_obstacle(bench: &Bench) -> Result<()> {
    let kinds = [("HelmChart", "helmcharts"), ("HelmChartConfig", "helmchartconfigs")];
    let definitions = kinds.map(|(kind, plural)| manifests::open_definition(GROUP, kind, plural, true, &["v1"]));
    definitions::serve(bench, &definitions).await?;
    bench.namespace(NAME, &json!({})).await?;
    register_kube_system(bench).await?;
    let of_charts = json!({"profile": "RancherRKE2", "namespaceSelector": {"matchLabels": {CLUSTER_LABEL: NAME}}});
    let of_kubeadm = json!({"profile": "KubeadmConfig",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}});
    bench
        .migration(NAME, json!({"phase": "Prepare", "targets": [of_charts, of_kubeadm]}))
        .await?;

    for (name, first_lines) in VALUES {
        created_and_changed(bench, "helmcharts", &chart(name, first_lines))
            .await
            .with_context(|| format!("HelmChart {name}"))?;
    }
    for (_, first_lines) in VALUES {
        let config = chart_config(first_lines);
        created_and_changed(bench, "helmchartconfigs", &config)
            .await
            .with_context(|| format!("HelmChartConfig: {first_lines}"))?;
        let path = format!("{}/aws-cloud-controller-manager", collection("helmchartconfigs"));
        crate::components::delete(bench, &path).await?;
    }
    kubeadms_configuration(bench).await.context("kubeadm-config")?;

    // The alert OutriggerWebhookPatchRejected reads it. No step before this one may have caused it, either.
    let metrics = bench.metrics_of_the_api_server().await?;
    let mut lines = metrics.lines();
    let rejected = lines.find(|line| line.contains("apiserver_internal_error") && line.contains("outrigger.dev"));
    ensure!(rejected.is_none(), "{rejected:?}");
    definitions::withdraw(bench, &definitions).await
}

/// The component's registration, with the address of the base's.
async fn register_kube_system(bench: &Bench) -> Result<()> {
    let file = manifests::folder().join("components/kube-system/mutating-webhook-configuration.yaml");
    let mut registration: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    let base = bench.read(&format!("{REGISTRATIONS}/outrigger")).await?;
    for entry in registration["webhooks"].as_array_mut().context("no webhooks")? {
        entry["clientConfig"] = base["webhooks"][0]["clientConfig"].clone();
    }
    manifests::apply(&bench.admin, &[registration]).await
}

fn collection(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{NAME}/{plural}")
}

fn values(first_lines: &str, level: u8) -> String {
    format!(
        "{first_lines}\nhostNetworking: true\nimage: {{tag: v1.26.6}}\nargs:\n- --v={level}\n- --cloud-provider=aws\n"
    )
}

fn chart(name: &str, first_lines: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HelmChart", "metadata": {"name": name, "namespace": NAME},
        "spec": {
            "chart": "aws-cloud-controller-manager", "repo": "https://charts.example.test", "bootstrap": true,
            "valuesContent": values(first_lines, 2),
        },
    })
}

fn chart_config(first_lines: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HelmChartConfig",
        "metadata": {"name": "aws-cloud-controller-manager", "namespace": NAME},
        "spec": {"valuesContent": values(first_lines, 2)},
    })
}

/// The object gets the flag when it is created, and keeps it, and the rest of its text, when its owner changes it.
async fn created_and_changed(bench: &Bench, plural: &str, object: &Value) -> Result<()> {
    let text = |object: &Value| object["spec"]["valuesContent"].as_str().unwrap_or_default().to_owned();
    let with_flag = |text: &str| format!("{text}- {FLAG}\n");
    let created = bench.create(&collection(plural), object).await?.granted()?.body;
    ensure!(text(&created) == with_flag(&text(object)), "{created}");

    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let changed = text(object).replace("--v=2", "--v=4");
    let patch = json!({"spec": {"valuesContent": changed}});
    let stored = bench
        .merge(&format!("{}/{name}", collection(plural)), &patch)
        .await?
        .body;
    ensure!(text(&stored) == with_flag(&changed), "{stored}");
    Ok(())
}

/// No API server sends the creation of a ConfigMap.
async fn kubeadms_configuration(bench: &Bench) -> Result<()> {
    let text = "apiServer:\n  extraArgs:\n    cloud-provider: aws\n    \
                oidc-issuer-url: https://idp.example.org/auth?a=1&b=2\napiVersion: kubeadm.k8s.io/v1beta3\n\
                controllerManager:\n  extraArgs:\n    cloud-provider: aws\nkind: ClusterConfiguration\n\
                kubernetesVersion: v1.26.13\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": text},
    });
    let created = bench.create(CONFIG_MAPS, &map).await?.granted()?.body;
    ensure!(created["data"] == map["data"], "{created}");

    let ask = json!({"metadata": {"annotations": {APPLY: format!("{NAME}/Prepare")}}});
    let path = format!("{CONFIG_MAPS}/kubeadm-config");
    let stored = bench.merge(&path, &ask).await?.body;
    let added = "    cloud-provider: aws\n    enable-leader-migration: \"true\"\nkind";
    let wanted = text.replace("    cloud-provider: aws\nkind", added);
    ensure!(stored["data"]["ClusterConfiguration"] == wanted.as_str(), "{stored}");
    crate::components::delete(bench, &path).await?;
    crate::components::delete(bench, &format!("{REGISTRATIONS}/outrigger-kube-system")).await
}
