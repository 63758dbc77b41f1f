//! The chart with the incumbent's name: it accepts that chart's values, keeps its names, and refuses others by name.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::cluster::OUR_IMAGE;
use super::{INCUMBENT, incumbent};

const CHART: &str = "../charts/aws-cloud-controller-manager";
const OURS: &str = "aws-cloud-controller-manager:outrigger";

/// The names of all values in the incumbent's chart 0.0.11, and a value of an operator for each:
/// <https://github.com/kubernetes/cloud-provider-aws/tree/v1.37.1/charts/aws-cloud-controller-manager>
fn all_values() -> Value {
    json!({
        "namespace": "cloud",
        "args": ["--v=4", "--cloud-provider=aws", "--tags=a=b"],
        "image": {"repository": OUR_IMAGE, "tag": "0.1.0"},
        "imagePullSecrets": [{"name": "registry"}],
        "nameOverride": "ccm",
        "nodeSelector": {"example.com/pool": "infra"},
        "clusterRoleRules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        "resources": {"requests": {"cpu": "200m"}, "limits": {"memory": "300Mi"}},
        "env": [{"name": "AWS_REGION", "value": "eu-west-1"}],
        "securityContext": {"readOnlyRootFilesystem": false},
        "podSecurityContext": {"runAsUser": 0},
        "podAnnotations": {"example.com/team": "platform"},
        "tolerations": [{"operator": "Exists"}],
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetworking": true,
        "clusterRoleName": "role",
        "roleBindingName": "reader",
        "serviceAccountName": "account",
        "serviceAccount": {"annotations": {"example.com/role": "r"}},
        "roleName": "authentication",
        "extraVolumes": [{"name": "cloud", "configMap": {"name": "cloud"}}],
        "extraVolumeMounts": [{"name": "cloud", "mountPath": "/etc/cloud"}],
    })
}

async fn helm(verb: &[&str], values: &Value) -> Result<Output> {
    let tools = Tools::load(&[Tool::Helm]).await?;
    let home = tempfile::tempdir()?;
    let path = home.path().join("values.json");
    std::fs::write(&path, values.to_string())?;
    tokio::process::Command::new(tools.path(Tool::Helm)?)
        .args(verb)
        .args([CHART, "--kube-version=1.27", "--values"])
        .arg(&path)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .await
        .context("running helm")
}

async fn render(values: &Value) -> Result<Vec<Value>> {
    let output = helm(&["template", INCUMBENT], values).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template: {errors}");
    let text = String::from_utf8(output.stdout)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("helm printed no YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

async fn by_default() -> Vec<Value> {
    let image = json!({"image": {"repository": OUR_IMAGE}});
    render(&image).await.expect("rendered")
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
    };
    objects.iter().map(name).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Each verb of each resource, so that the order and the grouping of rules do not count.
fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    found.insert(format!("{group} {resource} {} {verb}", rule["resourceNames"]));
                }
            }
        }
    }
    found
}

#[tokio::test]
async fn helm_finds_no_fault() {
    let image = json!({"image": {"repository": OUR_IMAGE}});
    let output = helm(&["lint", "--strict"], &image).await.expect("helm runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("0 chart(s) failed"), "{printed}");
}

#[tokio::test]
async fn the_objects_of_the_incumbent_keep_their_names_and_rights() {
    let ours = by_default().await;
    let theirs = incumbent::manifests(&[]);

    let missing: Vec<String> = names(&theirs).difference(&names(&ours)).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
    let added: BTreeSet<String> = names(&ours).difference(&names(&theirs)).cloned().collect();
    assert_eq!(added.len(), 4, "{added:?}");
    assert!(added.iter().all(|name| name.contains(OURS)), "{added:?}");

    let kept = json!({"rules": incumbent::chart_rules()});
    assert_eq!(
        rights(find(&ours, "ClusterRole", incumbent::ROLE)),
        rights(&kept),
        "rights of the incumbent"
    );
    let selector = |objects: &[Value]| find(objects, "DaemonSet", INCUMBENT)["spec"]["selector"].clone();
    assert_eq!(selector(&ours), selector(&theirs), "a selector is immutable");
    let container = |objects: &[Value]| {
        find(objects, "DaemonSet", INCUMBENT)["spec"]["template"]["spec"]["containers"][0]["name"].clone()
    };
    assert_eq!(container(&ours), container(&theirs));
}

/// The rights of the manifests, without those that only a migration needs.
#[tokio::test]
async fn the_own_roles_have_the_rights_of_the_manifests() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let base = manifests::folder().join("base/manager");
    let base = manifests::build(&tools, &base).await.expect("rendered");
    let ours = by_default().await;

    let mut wanted = rights(find(&base, "ClusterRole", "outrigger-manager"));
    wanted.retain(|right| !right.contains("cloudprovidermigrations"));
    assert_eq!(rights(find(&ours, "ClusterRole", OURS)), wanted);
    let lease = find(&base, "Role", "outrigger-manager:main-lease");
    assert_eq!(rights(find(&ours, "Role", OURS)), rights(lease));
}

#[tokio::test]
async fn every_value_of_the_incumbents_chart_arrives_in_the_objects() {
    let values = all_values();
    let objects = render(&values).await.expect("rendered");
    let daemon_set = find(&objects, "DaemonSet", "ccm");
    let spec = &daemon_set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];

    assert_eq!(daemon_set["metadata"]["namespace"], "cloud");
    assert_eq!(daemon_set["spec"]["selector"]["matchLabels"], json!({"k8s-app": "ccm"}));
    assert_eq!(
        daemon_set["spec"]["template"]["metadata"]["annotations"],
        values["podAnnotations"]
    );
    assert_eq!(container["image"], format!("{OUR_IMAGE}:0.1.0"));
    for field in ["args", "env", "resources", "securityContext"] {
        assert_eq!(container[field], values[field], "{field}");
    }
    assert_eq!(container["volumeMounts"], values["extraVolumeMounts"]);
    for (field, value) in [
        ("imagePullSecrets", "imagePullSecrets"),
        ("tolerations", "tolerations"),
        ("dnsPolicy", "dnsPolicy"),
        ("hostNetwork", "hostNetworking"),
        ("securityContext", "podSecurityContext"),
        ("serviceAccountName", "serviceAccountName"),
        ("volumes", "extraVolumes"),
    ] {
        assert_eq!(spec[field], values[value], "{field}");
    }
    // Helm merges maps: the default of the incumbent's chart stays.
    assert_eq!(
        spec["nodeSelector"],
        json!({"example.com/pool": "infra", "node-role.kubernetes.io/control-plane": ""})
    );
    let account = find(&objects, "ServiceAccount", "account");
    assert_eq!(
        account["metadata"]["annotations"],
        values["serviceAccount"]["annotations"]
    );
    assert_eq!(
        find(&objects, "ClusterRole", "role")["rules"],
        values["clusterRoleRules"]
    );
    assert_eq!(
        find(&objects, "RoleBinding", "reader")["roleRef"]["name"],
        "authentication"
    );
    let subject = json!({"kind": "ServiceAccount", "name": "account", "namespace": "cloud"});
    for object in objects.iter().filter(|object| object["subjects"].is_array()) {
        assert_eq!(object["subjects"], json!([subject]), "{object}");
    }
}

/// A wrong value is refused before anything is sent, and the message names its key.
#[tokio::test]
async fn wrong_values_are_refused_by_name() {
    let image = json!({"repository": OUR_IMAGE});
    let mirror = format!("mirror.example.com/{}", incumbent::IMAGE);
    let cases = [
        (json!({}), "/image/repository"),
        (json!({"image": {"repository": ""}}), "/image/repository"),
        (json!({"image": {"repository": mirror}}), "image.repository is"),
        (json!({"image": {"repository": OUR_IMAGE, "digest": "a"}}), "'digest'"),
        (json!({"image": image, "migration": "cluster"}), "'migration'"),
        (
            json!({"image": image, "args": ["--migration=cluster"]}),
            "--migration=cluster",
        ),
        (json!({"image": image, "args": {"v": "2"}}), "/args"),
        (json!({"image": image, "args": ["v=2"]}), "/args/0"),
        (json!({"image": image, "extraArgs": {"v": "2"}}), "'extraArgs'"),
        (json!({"image": image, "env": {"A": "b"}}), "/env"),
        (json!({"image": image, "nameOverride": ""}), "/nameOverride"),
        (json!({"image": image, "tolerations": [{"keys": "a"}]}), "'keys'"),
        (
            json!({"image": image, "clusterRoleRules": [{"apiGroups": [""]}]}),
            "'verbs'",
        ),
        (json!({"image": image, "hostNetworking": "true"}), "/hostNetworking"),
    ];
    for (wrong, named) in cases {
        let output = helm(&["template", INCUMBENT], &wrong).await.expect("helm runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{wrong} is accepted");
        assert!(message.contains(named), "{wrong}: {message}");
    }
}

/// A value that is absent there would be refused as an unknown one by the operator's next `helm upgrade`.
#[test]
fn the_values_are_those_of_the_incumbents_chart() {
    let text = std::fs::read_to_string(PathBuf::from(CHART).join("values.yaml")).expect("values.yaml");
    let values: Value = serde_saphyr::from_str(&text).expect("YAML");
    let keys = |values: &Value| {
        values
            .as_object()
            .expect("values")
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(&values), keys(&all_values()));
}
