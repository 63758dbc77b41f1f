//! The component that gives each controller its own service account.

use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

const FLAG: &str = "--use-service-account-credentials=";

async fn with_component(path: &str) -> Vec<Value> {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let objects = manifests::with_component(&tools, run.path(), path, "controller-accounts").await;
    objects.expect("kustomize accepts it")
}

/// The subjects that may request the accounts' tokens.
fn subjects(objects: &[Value]) -> &Value {
    let is_it = |object: &&Value| {
        object["kind"] == "RoleBinding" && object["metadata"]["name"] == "outrigger-manager:controller-accounts"
    };
    &objects.iter().find(is_it).expect("the binding")["subjects"]
}

#[tokio::test]
async fn whoever_the_manager_is_may_ask_for_the_accounts_tokens() {
    let base = with_component("base").await;
    let account = json!([{"kind": "ServiceAccount", "name": "outrigger-manager", "namespace": "kube-system"}]);
    assert_eq!(subjects(&base), &account);
    let tenant = with_component("overlays/hosted/tenant").await;
    let user = json!([{"kind": "User", "name": "outrigger-manager", "apiGroup": "rbac.authorization.k8s.io"}]);
    assert_eq!(subjects(&tenant), &user);
    let static_pod = with_component("overlays/static-pod/cluster").await;
    assert_eq!(subjects(&static_pod), &user);
}

#[tokio::test]
async fn the_manager_on_the_control_planes_nodes_gets_the_flag() {
    let base = with_component("base").await;
    let manager = base
        .iter()
        .find(|object| object["kind"] == "DaemonSet")
        .expect("the manager");
    let arguments = manager["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    let flags: Vec<&Value> = arguments
        .expect("arguments")
        .iter()
        .filter(|argument| argument.as_str().is_some_and(|argument| argument.starts_with(FLAG)))
        .collect();
    assert_eq!(flags, [&json!(format!("{FLAG}true"))]);
}
