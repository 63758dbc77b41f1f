//! From a review over TLS to the patch in its answer: the edge and the decision together.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use json_patch::Patch;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use outrigger_webhook::view::Index;
use serde_json::{Value, json};
use server_support::{Options, Server, within};

fn migration(phase: &str, node_taint: &str) -> Value {
    json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "prod"},
        "spec": {"clusterID": "prod", "phase": phase, "nodeTaint": node_taint, "targets": [{"profile": "Nodes"}]}})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ip-10-0-0-1"}, "spec": {"newField": {"kept": true}}})
}

async fn answer(server: &Server, path: &str, object: &Value, dry_run: bool) -> Value {
    let request = json!({"uid": "u1", "operation": "CREATE", "name": "ip-10-0-0-1", "dryRun": dry_run, "object": object,
        "kind": {"group": "", "version": "v1", "kind": "Node"}, "resource": {"group": "", "version": "v1", "resource": "nodes"}});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let (status, text) = server.post(path, body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let review: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&review["response"]["uid"], &review["response"]["allowed"]),
        (&json!("u1"), &json!(true))
    );
    review["response"].clone()
}

/// Applies a response as the API server does.
fn apply(object: &Value, answer: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = answer["patch"].as_str() {
        assert_eq!(answer["patchType"], "JSONPatch");
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

fn taints(object: &Value) -> Vec<&str> {
    object["spec"]["taints"].as_array().map_or(Vec::new(), |list| {
        list.iter().map(|t| t["key"].as_str().unwrap()).collect()
    })
}

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

async fn serving(migrations: Vec<Value>) -> Server {
    Server::start(Options {
        migrations: Some(migrations),
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn a_new_node_gets_the_taint_once_and_keeps_every_field() {
    let server = serving(vec![migration("Migrate", "Always")]).await;
    let first = answer(&server, "/mutate/prod", &node(), false).await;
    let stored = apply(&node(), &first);
    assert_eq!(taints(&stored), [TAINT]);
    assert_eq!(stored["spec"]["newField"], json!({"kept": true}));
    let keys: BTreeMap<String, String> = serde_json::from_value(first["auditAnnotations"].clone()).unwrap();
    assert!(
        !keys.is_empty() && keys.keys().all(|key| !key.contains('/')),
        "{keys:?}"
    );
    let second = answer(&server, "/mutate/prod", &stored, false).await;
    assert!(second["patch"].is_null(), "{second}");
    let text = server.reviewer.metrics.text().unwrap();
    assert!(
        text.contains(r#"reviews_total{kind="Node",decision="changed",phase="Migrate"} 1"#),
        "{text}"
    );
}

#[tokio::test]
async fn nothing_changes_without_a_migration_or_before_its_phase() {
    for (migrations, path) in [
        (vec![], "/mutate/prod"),
        (vec![migration("Prepare", "Always")], "/mutate/prod"),
        (vec![migration("Migrate", "Never")], "/mutate/prod"),
        (vec![migration("Migrate", "Always")], "/mutate/other"),
    ] {
        let server = serving(migrations).await;
        let answer = answer(&server, path, &node(), false).await;
        assert!(answer["patch"].is_null(), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_dry_run_is_answered_like_the_real_thing() {
    let server = serving(vec![migration("Migrate", "Always")]).await;
    let dry = answer(&server, "/mutate/prod", &node(), true).await;
    assert_eq!(dry, answer(&server, "/mutate/prod", &node(), false).await);
}

#[tokio::test]
async fn the_taint_waits_for_a_manager_that_renews_its_lease() {
    let server = serving(vec![migration("Migrate", "WhenManagerReady")]).await;
    let tainted = async || taints(&apply(&node(), &answer(&server, "/mutate", &node(), false).await)).len();
    assert_eq!(tainted().await, 0, "nothing is known of the lease");
    let lease = |renewed: i64| Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some("manager".to_owned()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    };
    server.reviewer.clusters.own.replace(vec![lease(100)]);
    assert_eq!(tainted().await, 0, "its holder may be long dead");
    // On a busy machine a lease may be over before the answer.
    let mut renewed = 101;
    within(async {
        while tainted().await == 0 {
            renewed += 1;
            server.reviewer.clusters.own.apply(lease(renewed));
        }
    })
    .await;
    // No renewal for a lease duration.
    within(async {
        while tainted().await == 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}
