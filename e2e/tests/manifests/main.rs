//! The project's manifests on real API servers of the oldest and the newest minor: accepted without a warning, and
//! meaning what they say.
//!
//! | what | file |
//! |---|---|
//! | every object is accepted, strictly | here |
//! | which calls may fail, and how long they may take | `registration.rs` |
//! | the resource that drives a migration | `definition.rs` |
//! | who may do what, above all with leases | `rights.rs` |
//! | who writes the status of a migration | `status_writers.rs` |
//! | controllers with accounts of their own | `accounts.rs` |
//! | the roles for persons | `roles.rs` |
//! | on which Nodes the manager runs | `placement.rs` |
//! | nothing of a running incumbent changes | `beside_the_incumbent.rs` |
//! | where a tenant's manager takes its AWS identity from, and who reaches the webhook | `hosted.rs` |
//! | the manager as a static Pod | `static_pod.rs` |
//! | an API server with a kube-controller-manager | `test_cluster.rs` |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod accounts;
mod beside_the_incumbent;
mod definition;
mod hosted;
mod placement;
mod registration;
mod rights;
mod roles;
mod static_pod;
mod status_writers;
mod test_cluster;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kube::Client;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

/// The kustomizations for operators, below `manifests/`.
const KUSTOMIZATIONS: [&str; 5] = [
    "base",
    "overlays/replace",
    "overlays/hosted/management",
    "overlays/hosted/tenant",
    "overlays/static-pod/cluster",
];

async fn rendered(tools: &Tools, path: &str) -> Vec<Value> {
    manifests::build(tools, &manifests::folder().join(path))
        .await
        .expect("kustomize accepts it")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_manifest_is_accepted_by_the_oldest_and_the_newest_api_server_and_means_what_it_says() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126, Tool::ApiServer136, Tool::Kustomize])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let (old, new) = tokio::join!(
        on(&tools, run.path(), &etcd, "old", Version::V1_26, "127.94.0.0/16"),
        on(&tools, run.path(), &etcd, "new", Version::V1_36, "127.95.0.0/16"),
    );
    for (name, result) in [("1.26", old), ("1.36", new)] {
        if let Err(error) = result {
            panic!("on kube-apiserver {name}: {error:#}");
        }
    }
}

async fn on(tools: &Tools, run: &Path, etcd: &Etcd, name: &str, version: Version, range: &str) -> Result<()> {
    let server = ApiServer::start(tools, run, etcd, &ApiServerOptions::new(name, version, range)).await?;
    let admin = server.client(&User::admin(), "manifests-test/1").await?;
    let start = Instant::now();
    let accepted = all_are_accepted(tools, &admin).await?;
    println!("{version:?}: {accepted} objects accepted after {:.1?}", start.elapsed());
    definition::check(&admin).await.context("the definition")?;
    println!("{version:?}: the definition holds after {:.1?}", start.elapsed());
    let questions = rights::check(tools, &admin, version).await.context("the rights")?;
    println!(
        "{version:?}: {questions} questions about rights answered after {:.1?}",
        start.elapsed()
    );
    Ok(())
}

/// Server-side apply with strict validation of every object of every kustomization. Objects that others
/// need are really stored; the rest is a dry run.
async fn all_are_accepted(tools: &Tools, admin: &Client) -> Result<usize> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-prod"}});
    review::apply_strictly(admin, &namespace, false).await?.granted()?;
    let mut accepted = 0;
    let run = tempfile::tempdir()?;
    let mut all = Vec::new();
    for path in KUSTOMIZATIONS {
        all.push((path, rendered(tools, path).await));
    }
    for (path, component) in [
        ("base", "self-signed"),
        ("overlays/hosted/tenant", "self-signed-tenant"),
    ] {
        all.push((
            component,
            manifests::with_component(tools, run.path(), path, component).await?,
        ));
    }
    all.push(("overlays/static-pod/machine", vec![static_pod::mirror(tools).await]));
    for (path, objects) in all {
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            let what = format!("{path}: {kind} {}", object["metadata"]["name"]);
            let is_needed = matches!(kind, "Namespace" | "CustomResourceDefinition");
            let answer = review::apply_strictly(admin, &object, !is_needed)
                .await
                .and_then(review::Answer::granted)
                .with_context(|| what.clone())?;
            ensure!(answer.warnings.is_empty(), "{what}: {:?}", answer.warnings);
            accepted += 1;
        }
    }
    Ok(accepted)
}

/// The same request is refused when the object is wrong: strict validation is at work.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_with_a_field_that_does_not_exist_would_be_refused() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126, Tool::Kustomize])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let options = ApiServerOptions::new("only", Version::V1_26, "127.93.0.0/16");
    let server = ApiServer::start(&tools, run.path(), &etcd, &options)
        .await
        .expect("API server");
    let admin = server.client(&User::admin(), "manifests-test/1").await.expect("client");
    let objects = rendered(&tools, "overlays/hosted/tenant").await;
    let mut registration = objects
        .into_iter()
        .find(|object| object["kind"] == "MutatingWebhookConfiguration")
        .expect("a registration");
    registration["webhooks"][0]["timeout"] = json!(3);
    let answer = review::apply_strictly(&admin, &registration, true)
        .await
        .expect("an answer");
    assert!(!answer.is_granted(), "{answer:?}");
    assert!(answer.message().contains("timeout"), "{}", answer.message());
}
