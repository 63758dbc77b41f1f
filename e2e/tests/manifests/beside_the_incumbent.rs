//! The base is applied beside a running aws-cloud-controller-manager: nothing of the incumbent's changes.

use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::rendered;

/// The service account of the incumbent's manifests and chart.
const INCUMBENT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The rights in the incumbent's published manifests, by the same names:
/// <https://github.com/kubernetes/cloud-provider-aws/tree/v1.37.1/examples/existing-cluster/base>
fn incumbent() -> Vec<Value> {
    let version = format!("{RBAC}/v1");
    let subjects = json!([{"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}]);
    let reader = "extension-apiserver-authentication-reader";
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "system:cloud-controller-manager"}, "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "patch", "update", "watch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "list", "watch", "update"]},
        ]}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "system:cloud-controller-manager"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:cloud-controller-manager"}, "subjects": subjects}),
        json!({"apiVersion": version, "kind": "RoleBinding",
            "metadata": {"name": "cloud-controller-manager:apiserver-authentication-reader", "namespace": "kube-system"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": reader}, "subjects": subjects}),
    ]
}

/// Every rule that holds for the incumbent in a namespace, as the API server's authorizer lists them, in a fixed order.
async fn rules(incumbent: &Client, namespace: &str) -> Vec<String> {
    let question: SelfSubjectRulesReview =
        serde_json::from_value(json!({"spec": {"namespace": namespace}})).expect("a review");
    let answer = Api::<SelfSubjectRulesReview>::all(incumbent.clone())
        .create(&PostParams::default(), &question)
        .await
        .expect("an answer");
    let status = answer.status.expect("a status");
    let mut rules: Vec<String> = status
        .resource_rules
        .iter()
        .map(|rule| serde_json::to_string(rule).expect("JSON"))
        .collect();
    rules.sort();
    rules
}

/// The incumbent's own objects, as they are stored.
async fn stored(admin: &Client) -> Vec<DynamicObject> {
    let mut objects = Vec::new();
    for object in incumbent() {
        objects.push(manifests::get(admin, &object).await.expect("the incumbent's object"));
    }
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn the_base_changes_nothing_of_a_running_cloud_controller_manager() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126, Tool::Kustomize])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let options = ApiServerOptions::new("beside", Version::V1_26, "127.91.0.0/16");
    let server = ApiServer::start(&tools, run.path(), &etcd, &options)
        .await
        .expect("API server");
    let admin = server.client(&User::admin(), "manifests-test/1").await.expect("client");
    let account = User::new(INCUMBENT).in_group("system:serviceaccounts");
    let account = server.client(&account, "manifests-test/2").await.expect("client");
    manifests::apply(&admin, &incumbent()).await.expect("the incumbent's");
    let objects = stored(&admin).await;
    let before = (rules(&account, "kube-system").await, rules(&account, "default").await);
    assert!(
        before.0.iter().any(|rule| rule.contains("leases")),
        "the incumbent has its rights: {:?}",
        before.0
    );

    let base = rendered(&tools, "base").await;
    manifests::apply(&admin, &base).await.expect("the base");

    let after = (rules(&account, "kube-system").await, rules(&account, "default").await);
    assert_eq!(after, before, "rights of the incumbent");
    assert_eq!(stored(&admin).await, objects, "objects of the incumbent");
}
