//! `outrigger check` and `outrigger facts` on a real API server: as an administrator, as a user without rights, and where the
//! server does not answer.

#![allow(clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod broken;
mod large;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::relay::{Link, Relay};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

const SECRET: &str = "s3cret-value";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_read_with_the_rights_of_the_caller_and_without_secrets() {
    if let Err(error) = run().await {
        panic!("{error:#}");
    }
}

async fn run() -> Result<()> {
    let tools = Tools::load(&[Tool::Etcd, Version::V1_26.api_server()]).await?;
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start(&tools, folder.path()).await?;
    let options = ApiServerOptions::new("cluster", Version::V1_26, "127.120.0.0/16");
    let server = ApiServer::start(&tools, folder.path(), &etcd, &options).await?;
    let admin = server.client(&User::admin(), "check-test/1").await?;
    fill(&admin).await?;

    let config = server.kubeconfig(&User::admin())?;
    in_order(&config)?;
    versions(&config)?;
    findings(&admin, &config).await?;
    no_secrets(&config)?;
    without_rights(&server.kubeconfig(&User::new("nobody"))?)?;
    without_nodes(&server, &admin).await?;
    several(&config)?;
    waits(&admin, &config).await?;
    broken::each_has_its_code(&admin, &config).await?;
    without_an_answer(&server, folder.path()).await
}

fn outrigger(arguments: &[&str], config: &Path) -> Result<Output> {
    let mut command = std::process::Command::new(Binaries::one("outrigger")?);
    Ok(command.args(arguments).env("KUBECONFIG", config).output()?)
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Nodes are hidden from this user, as from Kubernetes' role `view`. Mirror Pods are not judged without them.
async fn without_nodes(server: &ApiServer, admin: &Client) -> Result<()> {
    let (user, group) = ("auditor", "rbac.authorization.k8s.io");
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let version = format!("{group}/v1");
    let objects = [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }),
    ];
    manifests::apply(admin, &objects).await?;

    let output = outrigger(
        &["check", "--only=control-plane"],
        &server.kubeconfig(&User::new(user))?,
    )?;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(0), "{out}{err}");
    ensure!(out.contains("nodes: forbidden") && !out.contains('×'), "{out}");

    Ok(())
}

/// A control plane of one machine and a worker, with the in-tree provider.
async fn fill(admin: &Client) -> Result<()> {
    let crd = std::fs::read_to_string(manifests::folder().join("base/crd.yaml"))?;
    manifests::apply(admin, &[serde_saphyr::from_str(&crd)?]).await?;
    let nodes: Api<Node> = Api::all(admin.clone());
    for (name, labels) in [
        ("cp-1", json!({"node-role.kubernetes.io/control-plane": ""})),
        ("worker-1", json!({})),
    ] {
        let mut labels = labels;
        labels["kubernetes.io/hostname"] = json!(name);
        let node = json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"providerID": format!("aws:///a/i-{name}")},
        });
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node)?)
            .await?;
        set_ready(&nodes, name, "True").await?;
    }

    let pod = json!({
        "metadata": {
            "name": "kube-controller-manager-cp-1", "namespace": "kube-system",
            "annotations": {"kubernetes.io/config.mirror": "x"},
        },
        "spec": {
            "nodeName": "cp-1", "hostNetwork": true,
            "containers": [{
                "name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
                "command": ["kube-controller-manager", "--cloud-provider=aws", format!("--token={SECRET}"), "--cluster-name=$(AWS_SECRET_ACCESS_KEY)"],
                "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": SECRET}],
            }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "kube-system");
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;

    Ok(())
}

async fn set_ready(nodes: &Api<Node>, name: &str, status: &str) -> Result<()> {
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": status}], "nodeInfo": {"kubeletVersion": "v1.26.13"},
    }});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// The API server keeps each field of the definition.
fn versions(config: &Path) -> Result<()> {
    let output = outrigger(&["version"], config)?;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(0), "{out}{err}");
    for part in [
        "API server  v1.26.",
        "manager     no Pod is seen",
        "definition  has all fields of this version",
    ] {
        ensure!(out.contains(part), "{part:?} in\n{out}");
    }

    Ok(())
}

fn in_order(config: &Path) -> Result<()> {
    let output = outrigger(&["check"], config)?;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(0), "{out}{err}");
    for part in [
        "Kubernetes 1.26.",
        "1 control plane, 1 worker",
        "in-tree provider",
        "Outrigger not installed",
        "no error in ",
        // The kubelets do not exist.
        "2 of 2 kubelets; cp-1: its kubelet does not tell its command line",
    ] {
        ensure!(out.contains(part), "{part:?} in\n{out}");
    }

    Ok(())
}

/// The codes of these findings of a report.
fn codes(report: &Value, is_wanted: impl Fn(&Value) -> bool) -> Result<Vec<String>> {
    let groups = report["groups"].as_array().context("groups")?;
    let findings = groups.iter().filter_map(|group| group["findings"].as_array()).flatten();
    let wanted = findings.filter(|finding| is_wanted(finding));
    Ok(wanted
        .filter_map(|finding| Some(finding["code"].as_str()?.to_owned()))
        .collect())
}

async fn findings(admin: &Client, config: &Path) -> Result<()> {
    let nodes: Api<Node> = Api::all(admin.clone());
    set_ready(&nodes, "worker-1", "False").await?;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "ip-10-0-1-2"}}});
    nodes
        .patch("worker-1", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    let output = outrigger(&["check", "--kubelets=none", "-o", "json"], config)?;
    ensure!(output.status.code() == Some(2), "{:?}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let codes = codes(&report, |_| true)?;
    ensure!(codes == ["OUT402", "OUT407"], "{codes:?}");

    let only = outrigger(&["check", "--kubelets=none", "--only=OUT407"], config)?;
    ensure!(only.status.code() == Some(0), "a warning");
    let strict = outrigger(
        &["check", "--kubelets=none", "--only=OUT407", "--fail-on=warning"],
        config,
    )?;
    ensure!(strict.status.code() == Some(2), "{:?}", text(&strict));

    Ok(())
}

/// The Node that `findings` left with another host name is repaired while the command waits.
async fn waits(admin: &Client, config: &Path) -> Result<()> {
    let arguments = ["check", "--kubelets=none", "--only=OUT402"];
    let over = outrigger(&[&arguments[..], &["--wait=1"]].concat(), config)?;
    let (out, err) = text(&over);
    ensure!(over.status.code() == Some(3) && out.contains("OUT402"), "{out}{err}");

    let mut waiting = tokio::process::Command::new(Binaries::one("outrigger")?)
        .args([&arguments[..], &["--wait=60"]].concat())
        .env("KUBECONFIG", config)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let lines = waiting.stderr.take().context("stderr")?;
    let mut lines = tokio::io::BufReader::new(lines).lines();
    let line = lines.next_line().await?.context("no line")?;
    ensure!(line.contains("OUT402"), "{line}");

    let nodes: Api<Node> = Api::all(admin.clone());
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "worker-1"}}});
    nodes
        .patch("worker-1", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    let status = waiting.wait().await?;
    ensure!(status.code() == Some(0), "{status}");
    ensure!(lines.next_line().await?.is_none(), "a second line");

    Ok(())
}

fn no_secrets(config: &Path) -> Result<()> {
    let output = outrigger(&["facts"], config)?;
    let (out, err) = text(&output);
    ensure!(output.status.success(), "{err}");
    ensure!(
        out.contains("\"cloud-provider\": \"aws\"") && !out.contains(SECRET),
        "{out}"
    );

    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &out)?;
    let path = file.path().to_str().context("a path")?;
    let again = outrigger(&["check", "--facts", path], Path::new("/none"))?;
    ensure!(again.status.code() == Some(2), "{:?}", text(&again));

    Ok(())
}

/// Nothing is ok that was not read.
fn without_rights(config: &Path) -> Result<()> {
    let output = outrigger(&["check"], config)?;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(0), "{out}{err}");
    for right in [
        "nodes",
        "pods in kube-system",
        "leases in kube-system",
        "cloudprovidermigrations.outrigger.dev",
        "mutatingwebhookconfigurations",
        "persistentvolumes",
        "csidrivers",
        "services",
        "customresourcedefinitions",
    ] {
        let is_get = ["leases", "customresourcedefinitions"]
            .iter()
            .any(|one| right.starts_with(one));
        let verb = if is_get { "get" } else { "list" };
        ensure!(out.contains(&format!("{verb} {right}")), "{right:?} in\n{out}");
    }
    ensure!(out.contains("OUT102") && out.contains("not made"), "{out}");
    let ok = out.lines().filter(|line| line.ends_with(" ok")).count();
    ensure!(ok == 1, "only the version was looked at:\n{out}");

    Ok(())
}

/// One line for each cluster; a broken one is named and does not hide the others.
fn several(config: &Path) -> Result<()> {
    let mut content: Value = serde_json::from_slice(&std::fs::read(config)?)?;
    let context = content["contexts"][0].clone();
    let (mut good, mut bad) = (context.clone(), context);
    (good["name"], bad["name"]) = (json!("prod-1"), json!("prod-2"));
    bad["context"]["cluster"] = json!("elsewhere");
    let mut elsewhere = content["clusters"][0].clone();
    elsewhere["name"] = json!("elsewhere");
    elsewhere["cluster"]["server"] = json!("https://127.0.0.1:1");
    content["contexts"] = json!([good, bad]);
    content["clusters"].as_array_mut().context("clusters")?.push(elsewhere);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), content.to_string())?;

    let output = outrigger(&["check", "--context", "prod-*", "--kubelets=none"], file.path())?;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(1), "{out}{err}");
    ensure!(
        out.starts_with("prod-1   Kubernetes 1.26.") && out.trim().ends_with("OUT402 OUT407"),
        "{out}"
    );
    ensure!(
        err.starts_with("prod-2   https://127.0.0.1:1 cannot be reached"),
        "{err}"
    );

    let none = outrigger(&["check", "--context", "test-*"], file.path())?;
    ensure!(
        text(&none)
            .1
            .contains("no context of the kubeconfig has a name like \"test-*\"")
    );

    Ok(())
}

/// The server accepts the connection and never answers.
async fn without_an_answer(server: &ApiServer, folder: &Path) -> Result<()> {
    let address = server.url().trim_start_matches("https://").parse()?;
    let relay = Relay::start(address).await?;
    relay.set(Link::Silent);
    let url = format!("https://{}", relay.address());
    let config = server.authority().kubeconfig("silent", &url, &User::admin())?;
    let file: PathBuf = folder.join("silent.json");
    std::fs::write(&file, config.to_string())?;

    let began = Instant::now();
    let task = tokio::task::spawn_blocking(move || outrigger(&["check", "--request-timeout=2"], &file));
    let output = task.await??;
    let (out, err) = text(&output);
    ensure!(output.status.code() == Some(1) && out.is_empty(), "{out}{err}");
    ensure!(err.lines().count() == 1 && err.contains("no answer in 2 s"), "{err}");
    ensure!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

    Ok(())
}
