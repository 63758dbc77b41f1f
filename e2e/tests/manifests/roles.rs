//! The roles for persons: `outrigger-viewer` and `outrigger-operator` allow what they state, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::tools::Tools;
use outrigger_cluster_harness::wait;
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use super::rendered;
use super::test_cluster::TestCluster;

const MIGRATIONS: &str = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const LIMIT: Duration = Duration::from_secs(60);

/// `verb group/resource names` of each permission that the API server lists for its caller.
async fn permissions(client: &Client) -> BTreeSet<String> {
    let question = serde_json::from_value(json!({"spec": {"namespace": "kube-system"}})).expect("a review");
    let answer = Api::<SelfSubjectRulesReview>::all(client.clone())
        .create(&PostParams::default(), &question)
        .await
        .expect("an answer");
    let mut found = BTreeSet::new();
    for rule in answer.status.expect("a status").resource_rules {
        let names = rule.resource_names.unwrap_or_default().join(" ");
        for group in rule.api_groups.unwrap_or_default() {
            for resource in rule.resources.clone().unwrap_or_default() {
                let of_rule = rule
                    .verbs
                    .iter()
                    .map(|verb| format!("{verb} {group}/{resource} {names}"));
                found.extend(of_rule.map(|line| line.trim_end().to_owned()));
            }
        }
    }
    found
}

fn binding(role: &str, user: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": format!("test:{user}")},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    })
}

async fn is_granted(client: &Client, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<bool> {
    let answer = review::send(client, method, path, body).await?;
    anyhow::ensure!(answer.is_granted() || answer.code == 403, "{answer:?}");
    Ok(answer.is_granted())
}

/// Reading, and each kind of write, as real requests.
async fn requests(client: &Client) -> Result<Vec<bool>> {
    let phase = json!({"spec": {"phase": "InTree"}});
    let status = json!({"status": {"conditions": []}});
    let label = json!({"metadata": {"labels": {"outrigger.dev/control-plane": "hosted"}}});
    let annotation = json!({"metadata": {"annotations": {"outrigger.dev/apply": "prod/Prepare"}}});
    let merge = |body| Some((review::MERGE, body));
    let (one, lease) = (
        format!("{MIGRATIONS}/prod"),
        format!("{LEASES}/cloud-controller-manager"),
    );
    Ok(vec![
        is_granted(client, Method::GET, MIGRATIONS, None).await?,
        is_granted(client, Method::GET, &lease, None).await?,
        is_granted(client, Method::PATCH, &one, merge(&phase)).await?,
        is_granted(client, Method::PATCH, "/api/v1/namespaces/tenant", merge(&label)).await?,
        is_granted(client, Method::PATCH, &format!("{one}/status"), merge(&status)).await?,
        is_granted(client, Method::PATCH, &lease, merge(&json!({"spec": {}}))).await?,
        is_granted(client, Method::DELETE, &one, None).await?,
        is_granted(client, Method::GET, LEASES, None).await?,
        is_granted(
            client,
            Method::PATCH,
            &format!("{CONFIG_MAPS}/kubeadm-config"),
            merge(&annotation),
        )
        .await?,
        is_granted(
            client,
            Method::PATCH,
            &format!("{CONFIG_MAPS}/kube-root-ca.crt"),
            merge(&annotation),
        )
        .await?,
    ])
}

fn read_leases() -> impl Iterator<Item = String> {
    let names = "cloud-controller-manager cloud-provider-extraction-migration kube-controller-manager";
    std::iter::once(format!("get coordination.k8s.io/leases {names}"))
}

fn all(verbs: &[&str], resource: &str) -> Vec<String> {
    verbs.iter().map(|verb| format!("{verb} {resource}")).collect()
}

async fn prepare(admin: &Client, tools: &Tools) {
    let objects = rendered(tools, "base").await;
    let is_needed = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["kind"] == "CustomResourceDefinition" || ["outrigger-viewer", "outrigger-operator"].contains(&name)
    };
    let mut needed: Vec<Value> = objects.into_iter().filter(is_needed).collect();
    assert_eq!(needed.len(), 3, "the definition and two roles");
    needed.extend([
        binding("outrigger-viewer", "viewer"),
        binding("outrigger-operator", "operator"),
        binding("view", "reader"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {},
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}}),
        json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "prod"},
            "spec": {"clusterID": "prod", "phase": "InTree", "targets": [{"profile": "Nodes"}]}}),
    ]);
    manifests::apply(admin, &needed).await.expect("applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_read_migrations_and_operators_perform_them() {
    let cluster = TestCluster::start("roles", "127.89.0.0/16").await;
    let client = async |name: &str| {
        let user = User::new(name).in_group("system:authenticated");
        cluster.server.client(&user, "manifests-test/2").await.expect("client")
    };
    prepare(&cluster.admin, &cluster.tools).await;
    // The controller that aggregates roles runs in the kube-controller-manager.
    let _manager = cluster.controller_manager(&["--controllers=clusterrole-aggregation"]);
    let everybody = permissions(&client("nobody").await).await;
    let added = async |name: &str| -> BTreeSet<String> {
        let all = permissions(&client(name).await).await;
        all.difference(&everybody).cloned().collect()
    };

    let migrations = "outrigger.dev/cloudprovidermigrations";
    let viewer: BTreeSet<String> = all(&["get", "list", "watch"], migrations)
        .into_iter()
        .chain(read_leases())
        .collect();
    assert_eq!(added("viewer").await, viewer);
    assert_eq!(
        requests(&client("viewer").await).await.expect("answers"),
        [true, true, false, false, false, false, false, false, false, false]
    );

    let operator: BTreeSet<String> = all(&["get", "list", "watch", "create", "patch"], migrations)
        .into_iter()
        .chain(all(&["get", "list"], "/namespaces"))
        .chain(all(&["list"], "/events"))
        .chain(all(&["get", "patch"], "/configmaps kubeadm-config"))
        .chain(read_leases())
        .collect();
    assert_eq!(added("operator").await, operator);
    assert_eq!(
        requests(&client("operator").await).await.expect("answers"),
        [true, true, true, false, false, false, false, false, true, false]
    );

    let reader = client("reader").await;
    let aggregated = async || {
        is_granted(&reader, Method::GET, MIGRATIONS, None)
            .await
            .is_ok_and(|is| is)
            .then_some(())
    };
    wait::until("the aggregation to view", LIMIT, aggregated)
        .await
        .expect("in time");
}
