//! A refusal on the validating path, over TLS. `webhook/decide/tests/validation.rs` has the cases of the decision.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use serde_json::{Value, json};
use server_support::{Options, Server};

fn migration(mode: &str) -> Value {
    json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "prod"},
        "spec": {"clusterID": "prod", "mode": mode, "targets": [
            {"profile": "AwsResources", "objectSelector": {"matchLabels": {"cluster": "prod"}}}]}})
}

async fn answer(server: &Server, path: &str) -> Value {
    let object = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "n", "labels": {"cluster": "prod"}}, "spec": {"tags": {"kubernetes.io/cluster/test": "owned"}}});
    let request = json!({"uid": "u7", "operation": "CREATE", "name": "n", "object": object,
        "kind": {"group": "karpenter.k8s.aws", "version": "v1", "kind": "EC2NodeClass"},
        "resource": {"group": "karpenter.k8s.aws", "version": "v1", "resource": "ec2nodeclasses"}});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let (status, text) = server.post(path, body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let review: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(review["response"]["uid"], "u7", "{text}");
    review["response"].clone()
}

#[tokio::test]
async fn only_the_validating_path_refuses_and_only_in_mode_enforce() {
    for mode in ["Enforce", "Audit"] {
        let server = Server::start(Options {
            migrations: Some(vec![migration(mode)]),
            ..Options::default()
        })
        .await;
        for path in ["/mutate", "/mutate/prod"] {
            let answer = answer(&server, path).await;
            assert_eq!(answer["allowed"], true, "{path} {mode}: {answer}");
            assert!(
                answer["warnings"][0].as_str().unwrap().contains("another cluster"),
                "{answer}"
            );
        }
        for path in ["/validate", "/validate/prod"] {
            let answer = answer(&server, path).await;
            assert_eq!(answer["allowed"], mode == "Audit", "{path} {mode}: {answer}");
            assert_eq!(answer.get("patch"), None);
            if mode == "Enforce" {
                assert_eq!(answer["status"]["code"], 403);
                assert!(
                    answer["status"]["message"]
                        .as_str()
                        .unwrap()
                        .contains("kubernetes.io/cluster/test")
                );
            }
        }
        let other = answer(&server, "/validate/another").await;
        assert_eq!(other["allowed"], true, "{other}");
    }
}
