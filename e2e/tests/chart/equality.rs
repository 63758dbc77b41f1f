//! The objects of the chart are those of the kustomizations for the same purpose, except for the differences that are
//! listed here.

use std::collections::BTreeMap;
use std::path::Path;

use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::{Helm, NAMESPACE, PROFILES, values};

/// Labels of a chart's objects, and labels by which kustomizations select objects.
const OWN_LABELS: [&str; 6] = [
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// Objects by kind, namespace and name, without the differences that are intended.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut named = BTreeMap::new();
    for mut object in objects {
        // Helm creates the namespace of a release, without labels.
        if object["kind"] == "Namespace" {
            continue;
        }
        let metadata = &object["metadata"];
        let name = format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]);
        normalize(&mut object);
        assert!(named.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    named
}

fn normalize(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| !OWN_LABELS.contains(&label.as_str()));
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    if !matches!(object["kind"].as_str(), Some("DaemonSet" | "Deployment")) {
        return;
    }

    // In a kustomization each container has an image name of its own.
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    let container = container.as_object_mut().expect("a container");
    for field in ["image", "imagePullPolicy"] {
        container.remove(field);
    }
    // A patch of a kustomization removes the only volume, and leaves the empty list.
    container.retain(|field, value| field != "volumeMounts" || *value != json!([]));
    let pod = object["spec"]["template"]["spec"].as_object_mut().expect("a Pod");
    pod.retain(|field, value| field != "volumes" || *value != json!([]));
}

/// A kustomization with components, and with the file that names the API servers' addresses.
async fn kustomization(path: &str, components: &[&str]) -> Vec<Value> {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let root = manifests::folder().canonicalize().expect("folder");
    let peers = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "NetworkPolicyPeers",
        "metadata": {"name": "api-servers", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "from": [{"ipBlock": {"cidr": "192.0.2.10/32"}}, {"ipBlock": {"cidr": "2001:db8::1/128"}}],
    });
    std::fs::write(run.path().join("api-servers.yaml"), peers.to_string()).expect("written");

    let folder = run.path().canonicalize().expect("folder");
    let up = "../".repeat(folder.components().count() - 1);
    let relative = |path: &Path| format!("{up}{}", path.strip_prefix("/").expect("absolute").display());
    let resources = [relative(&root.join(path)), "api-servers.yaml".to_owned()];
    let components: Vec<String> = components
        .iter()
        .map(|component| relative(&root.join("components").join(component)))
        .collect();
    let text = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": resources, "components": components,
    });
    std::fs::write(run.path().join("kustomization.yaml"), text.to_string()).expect("written");
    manifests::build(&tools, run.path())
        .await
        .expect("kustomize accepts it")
}

fn assert_equal(chart: Vec<Value>, kustomization: Vec<Value>) {
    let (chart, kustomization) = (by_name(chart), by_name(kustomization));
    let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&chart), names(&kustomization), "objects");
    for (name, object) in &chart {
        let (ours, theirs) = (to_text(object), to_text(&kustomization[name]));
        assert!(ours == theirs, "{name}\nchart:\n{ours}\nkustomization:\n{theirs}");
    }
}

fn to_text(object: &Value) -> String {
    serde_json::to_string_pretty(object).expect("JSON")
}

/// In a management cluster the webhook also reaches API servers of tenants. The base has no such rule; its overlay has.
fn without_tenants(mut objects: Vec<Value>) -> Vec<Value> {
    let policy = objects.iter_mut().find(|object| object["kind"] == "NetworkPolicy");
    let ports = &mut policy.expect("a policy")["spec"]["egress"][0]["ports"];
    ports
        .as_array_mut()
        .expect("ports")
        .retain(|port| port["endPort"].is_null());
    objects
}

const ADDRESSES: [&str; 2] = ["192.0.2.10/32", "2001:db8::1/128"];

#[tokio::test]
async fn the_overlay_migrate_with_its_components_is_the_chart_with_all_profiles() {
    let chart = Helm::new()
        .await
        .template(
            NAMESPACE,
            &values(&json!({
                "profiles": PROFILES,
                "validation": true,
                "apiServerAddresses": ADDRESSES,
                "certificates": {"source": "certManager"},
                "manager": {"controllerAccounts": true},
                "podMonitor": {"enabled": true},
                "prometheusRule": {"enabled": true},
                "dashboard": {"enabled": true},
            })),
        )
        .await
        .expect("rendered");
    let components = [
        "kube-system",
        "validation",
        "controller-accounts",
        "network-policy",
        "monitoring/manager",
        "monitoring/webhook",
        "monitoring/dashboard",
        "cert-manager",
    ];

    assert_equal(
        without_tenants(chart),
        kustomization("overlays/migrate", &components).await,
    );
}

#[tokio::test]
async fn with_self_signed_certificates_the_overlay_is_the_chart_without_a_choice_of_certificates() {
    let chosen = values(&json!({"profiles": PROFILES}));
    let chart = Helm::new().await.template(NAMESPACE, &chosen).await.expect("rendered");

    let overlay = kustomization("overlays/migrate", &["kube-system", "self-signed"]).await;

    assert_equal(without_tenants(chart), overlay);
}

#[tokio::test]
async fn the_overlay_replace_is_the_chart_without_a_migration() {
    let helm = Helm::new().await;
    let chart = helm.template(NAMESPACE, &values(&json!({"migration": ""}))).await;

    let overlay = kustomization("overlays/replace", &[]).await;

    assert_equal(chart.expect("rendered"), overlay);
}

#[tokio::test]
async fn the_overlay_for_management_clusters_is_the_chart_without_a_manager() {
    let profiles = &PROFILES[1..];
    let helm = Helm::new().await;
    let chart = helm
        .template(
            NAMESPACE,
            &values(&json!({
                "profiles": profiles,
                "manager": {"enabled": false},
                "certificates": {"source": "certManager"},
            })),
        )
        .await
        .expect("rendered");

    let mut overlay = kustomization("overlays/hosted/management", &["kube-system", "cert-manager"]).await;
    // The manager of a tenant, which the chart does not install.
    overlay.retain(|object| {
        let metadata = &object["metadata"];
        metadata["namespace"] != "tenant-prod" && metadata["name"] != "outrigger-manager:migration-prod"
    });

    assert_equal(chart, overlay);
}

/// Values that add flags, fields or objects.
fn of_the_environment(digest: &str) -> Value {
    values(&json!({
        "image": {"repository": "r/o", "digest": digest},
        "imagePullSecrets": [{"name": "registry"}],
        "clusterName": "name",
        "clusterID": "prod",
        "cloudConfig": "[Global]\nZone = us-east-1a\n",
        "manager": {
            "securePort": 10268,
            "extraArgs": ["--configure-cloud-routes=true"],
            "env": [{"name": "AWS_REGION", "value": "us-east-1"}],
            "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"},
        },
        "webhook": {"replicas": 1, "extraArgs": ["--check-interval=1m"]},
    }))
}

#[tokio::test]
async fn values_of_the_environment_arrive_in_the_objects() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let helm = Helm::new().await;
    let objects = helm.template("elsewhere", &of_the_environment(&digest)).await;
    let objects = objects.expect("rendered");
    let objects = by_name_and_kind(&objects);
    let pod = |kind: &str| &objects[kind]["spec"]["template"]["spec"];
    let (manager, webhook) = (
        &pod("DaemonSet outrigger-manager")["containers"][0],
        pod("Deployment outrigger-webhook"),
    );

    for flag in [
        "--cluster-name=name",
        "--cluster-id=prod",
        "--cloud-config=/etc/outrigger/cloud/cloud.conf",
        "--secure-port=10268",
    ] {
        assert!(
            manager["args"].as_array().expect("flags").contains(&json!(flag)),
            "{flag}"
        );
    }
    let page = std::fs::read_to_string(manifests::folder().join("../docs/flags.md")).expect("docs/flags.md");
    for argument in manager["args"].as_array().expect("flags") {
        let flag = argument
            .as_str()
            .and_then(|text| text.split('=').next())
            .expect("a flag");
        assert!(page.contains(&format!("| `{flag}` |")), "the manager has no {flag}");
    }
    assert_eq!(
        manager["args"].as_array().expect("flags").last(),
        Some(&json!("--configure-cloud-routes=true")),
        "the last value of a flag counts"
    );
    assert_eq!(manager["image"], format!("r/o@{digest}"));
    assert_eq!(
        manager["ports"][0],
        json!({"name": "https", "containerPort": 10268, "hostPort": 10268})
    );
    assert_eq!(manager["env"][0]["value"], "us-east-1");
    let file = &objects["ConfigMap outrigger-cloud-config"]["data"]["cloud.conf"];
    assert_eq!(*file, "[Global]\nZone = us-east-1a\n");
    let account = &objects["ServiceAccount outrigger-manager"]["metadata"]["annotations"];
    assert_eq!(
        account["eks.amazonaws.com/role-arn"],
        "arn:aws:iam::111122223333:role/r"
    );

    let flags = webhook["containers"][0]["args"].as_array().expect("flags");
    assert!(
        flags.contains(&json!("--server-name=outrigger-webhook.elsewhere.svc")),
        "{flags:?}"
    );
    assert!(flags.contains(&json!("--check-interval=1m")), "{flags:?}");
    assert_eq!(webhook["imagePullSecrets"][0]["name"], "registry");
    assert!(
        !objects.contains_key("PodDisruptionBudget outrigger-webhook"),
        "it would forbid every drain"
    );
    let text = serde_json::to_string(&objects).expect("JSON");
    assert!(
        !text.contains(NAMESPACE),
        "an object names another namespace than the release's"
    );
}

/// 1.26 knows the field and ignores it, and server-side apply to an older API server refuses it.
#[tokio::test]
async fn pods_that_are_not_ready_may_be_evicted_from_1_27_on() {
    let helm = Helm::new().await;
    for (version, expected) in [("1.26.13", Value::Null), ("1.27.0", json!("AlwaysAllow"))] {
        let objects = helm.template_for(version, NAMESPACE, &values(&json!({}))).await;
        let objects = by_name_and_kind(&objects.expect("rendered"));
        let policy = &objects["PodDisruptionBudget outrigger-webhook"]["spec"]["unhealthyPodEvictionPolicy"];
        assert_eq!(*policy, expected, "{version}");
    }
}

fn by_name_and_kind(objects: &[Value]) -> BTreeMap<String, Value> {
    let named = objects.iter().map(|object| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        (name, object.clone())
    });
    named.collect()
}
