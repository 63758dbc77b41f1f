//! The policies that `outrigger webhook render-policies` prints, on a real API server: for every case what is stored
//! equals what `outrigger mutate`, and so the webhook's own decision, makes of the same object.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod cases;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::review::{self, Answer};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use cases::Case;

const MIGRATIONS: &str = "tests/policies/migrations.yaml";
const SOON: Duration = Duration::from_secs(30);
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn namespaces() -> Vec<Value> {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    vec![
        namespace("machines", json!({"cluster": "machines"})),
        namespace("elsewhere", json!({"cluster": "elsewhere"})),
        namespace("kube-system", json!({})),
    ]
}

/// The machine-controller's kind as far as it matters: unknown fields live on.
fn machine_deployments() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "machinedeployments.cluster.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "cluster.k8s.io", "scope": "Namespaced",
            "names": {"plural": "machinedeployments", "singular": "machinedeployment", "kind": "MachineDeployment", "listKind": "MachineDeploymentList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

async fn outrigger(arguments: &[&str], stdin: &str) -> Result<Output> {
    let mut child = tokio::process::Command::new(Binaries::one("outrigger")?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("stdin")?;
    input.write_all(stdin.as_bytes()).await?;
    drop(input);
    Ok(child.wait_with_output().await?)
}

async fn policies(version: &str) -> Result<Vec<Value>> {
    let migrations = format!("--migration={MIGRATIONS}");
    let version = format!("--api-version={version}");
    let output = outrigger(&["webhook", "render-policies", &migrations, &version], "").await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?)
}

/// The webhook's decision on an object.
async fn decided(case: &Case, object: &Value) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let migrations = format!("--migration={MIGRATIONS}");
    let mut arguments = vec!["mutate", "-f", "-", "-o", "json", &migrations];
    let old;
    if let Some(stored) = &case.stored {
        let file = folder.path().join("old.json");
        std::fs::write(&file, stored.to_string())?;
        old = format!("--old={}", file.display());
        arguments.push(&old);
    }
    let all: Vec<String> = namespaces().iter().chain([object]).map(Value::to_string).collect();
    let output = outrigger(&arguments, &all.join("\n")).await?;
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let last = report["objects"]
        .as_array()
        .and_then(|objects| objects.last())
        .context("objects")?;
    Ok(last["object"].clone())
}

/// Without what the API server alone writes.
fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
        ] {
            metadata.remove(key);
        }
    }
    object
}

async fn write(client: &Client, case: &Case, query: &str) -> Result<Value> {
    let collection = case.collection();
    let answer: Answer = match case.stored {
        None => review::create(client, &collection, query, &case.object).await?,
        Some(_) => {
            let path = format!("{collection}/{}{query}", case.name);
            let stored = review::send(client, http::Method::GET, &path, None)
                .await?
                .granted()?
                .body;
            let mut object = case.object.clone();
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            review::send(client, http::Method::PUT, &path, Some(("application/json", &object))).await?
        }
    };
    Ok(stripped(&answer.granted().with_context(|| case.name)?.body))
}

async fn start(tools: &Tools, run: &Path, etcd: &Etcd) -> Result<(ApiServer, Client)> {
    let mut options = ApiServerOptions::new("policies", Version::V1_36, "127.94.0.0/16");
    // So that there are Nodes without any taint.
    options.extra_arguments = vec![
        "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true".to_owned(),
    ];
    let server = ApiServer::start(tools, run, etcd, &options).await?;
    let client = server.client(&User::admin(), "policies-test/1").await?;
    let definition = std::fs::read_to_string(manifests::folder().join("base/crd.yaml"))?;
    let definition: Vec<Value> = serde_saphyr::from_multiple(&definition)?;
    let migrations: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(MIGRATIONS)?)?;
    manifests::apply(&client, &definition).await?;
    manifests::apply(&client, &[machine_deployments()]).await?;
    manifests::apply(&client, &namespaces()).await?;
    manifests::apply(&client, &migrations).await?;
    Ok((server, client))
}

/// Asks by dry runs until the answer holds the text, or does not.
async fn until(client: &Client, collection: &str, object: &Value, text: &str, wanted: bool) -> Result<()> {
    let probe = async || {
        let answer = review::create(client, collection, "?dryRun=All", object)
            .await?
            .granted()?;
        ensure!(answer.body.to_string().contains(text) == wanted, "{}", answer.body);
        Ok(())
    };
    Ok(wait::until(&format!("{text}: {wanted}"), SOON, probe).await?)
}

/// New Nodes of the migration get the taint, or not.
async fn until_tainted(client: &Client, migration: &str, wanted: bool) -> Result<()> {
    let metadata = json!({"name": "probe", "labels": {"case": migration}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    until(client, "/api/v1/nodes", &node, TAINT, wanted).await
}

/// The last binding that was made is in force, and so are the others.
async fn until_in_force(client: &Client) -> Result<()> {
    let probe = cases::probe("anywhere");
    until(
        client,
        &probe.collection(),
        &probe.object,
        "kubernetes.io/cluster/anywhere",
        true,
    )
    .await
}

async fn every_case(client: &Client) -> Result<()> {
    let cases: Vec<Case> = cases::nodes().into_iter().chain(cases::machine_deployments()).collect();
    for case in cases.iter() {
        if let Some(stored) = &case.stored {
            review::create(client, &case.collection(), "", stored)
                .await?
                .granted()?;
        }
    }
    let mut expected = Vec::new();
    for case in &cases {
        let defaulted = write(client, case, "?dryRun=All").await?;
        let object = decided(case, &defaulted).await?;
        ensure!(
            (object != defaulted) == case.changes,
            "{}: the decision makes {object}",
            case.name
        );
        expected.push(object);
    }
    let mut policies = policies("v1").await?;
    println!("{} policies and bindings", policies.len());
    for policy in &mut policies {
        // So that an expression that fails, and would be ignored, fails the request and the test.
        if let Some(failure_policy) = policy.pointer_mut("/spec/failurePolicy") {
            ensure!(*failure_policy == "Ignore", "{failure_policy}");
            *failure_policy = json!("Fail");
        }
        review::apply_strictly(client, policy, false).await?.granted()?;
    }
    until_in_force(client).await?;
    let mut different = Vec::new();
    for (case, expected) in cases.iter().zip(&expected) {
        let stored = write(client, case, "").await?;
        if stored != *expected {
            different.push(format!("{}:\n  stored {stored}\n  wanted {expected}", case.name));
        }
    }
    ensure!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        cases.len(),
        different.join("\n")
    );
    println!(
        "{} cases are stored as decided, {} of them changed",
        cases.len(),
        cases.iter().filter(|case| case.changes).count()
    );
    Ok(())
}

/// Policies follow the migration in the cluster without being rendered anew.
async fn they_follow_the_migration(client: &Client) -> Result<()> {
    let change = async |name: &str, spec: Value| {
        let path = format!("/apis/outrigger.dev/v1alpha1/cloudprovidermigrations/{name}");
        review::merge(client, &path, &json!({"spec": spec})).await?.granted()
    };
    change("prepare", json!({"phase": "Migrate"})).await?;
    until_tainted(client, "prepare", true).await?;
    change("audit", json!({"mode": "Enforce"})).await?;
    until_tainted(client, "audit", true).await?;
    let hosted =
        json!([{"profile": "Nodes"}, {"profile": "ClusterAPI", "objectSelector": {"matchLabels": {"a": "b"}}}]);
    change("audit", json!({"targets": hosted})).await?;
    until_tainted(client, "audit", false).await?;
    change("migrate", json!({"nodeTaint": "WhenManagerReady"})).await?;
    until_tainted(client, "migrate", false).await?;
    change("complete", json!({"targets": []})).await?;
    until_tainted(client, "complete", false).await?;
    let path = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations/prepare";
    review::send(client, http::Method::DELETE, path, None)
        .await?
        .granted()?;
    until_tainted(client, "prepare", false).await
}

async fn everything() -> Result<()> {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer136]).await?;
    let run = tempfile::tempdir()?;
    let etcd = Etcd::start(&tools, run.path()).await?;
    let (_server, client) = start(&tools, run.path(), &etcd).await?;
    every_case(&client).await?;
    they_follow_the_migration(&client).await?;
    for policy in &policies("v1beta1").await? {
        let answer = review::apply_strictly(&client, policy, true).await?;
        println!(
            "v1beta1 {}: {} {}",
            policy["metadata"]["name"],
            answer.code,
            answer.message()
        );
        answer.granted()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_policies_store_is_what_the_webhook_decides() {
    if let Err(error) = everything().await {
        panic!("{error:#}");
    }
}
