//! Node IPAM on a real API server: 500 Nodes, and a manager that is killed in the middle.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::Binaries;
use serde_json::json;

const NODES: usize = 500;
/// So many Nodes join after the kill, so that it always comes in the middle.
const LATER: usize = 50;
const PATIENCE: Duration = Duration::from_secs(120);
/// Everything that a run without AWS needs to know about it.
const CLOUD_CONFIG: &str = "[Global]
Zone = us-east-1a
VPC = vpc-1
SubnetID = subnet-1
KubernetesClusterID = prod
";

#[tokio::test(flavor = "multi_thread")]
async fn every_node_gets_its_own_ranges_though_the_manager_is_killed_in_the_middle() {
    if let Err(error) = drive().await {
        panic!("{error:#}");
    }
}

async fn drive() -> Result<()> {
    let begun = Instant::now();
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer136]).await?;
    let run = tempfile::tempdir()?;
    let etcd = Etcd::start(&tools, run.path()).await?;
    let options = ApiServerOptions::new("cluster", Version::V1_36, "127.96.0.0/16");
    let server = ApiServer::start(&tools, run.path(), &etcd, &options).await?;
    let nodes: Api<Node> = Api::all(server.client(&User::admin(), "node-ipam-test/1").await?);
    let kubeconfig = server.kubeconfig(&User::admin())?;

    let making = tokio::spawn(make(nodes.clone(), 0..NODES - LATER));
    let first = manager(run.path(), "first", &kubeconfig)?;
    let before = until(&nodes, "a fifth of them", |ranges| ranges.len() >= NODES / 5).await?;
    first.kill_now().await?;
    making.await??;
    // Writes that were under way at the kill have reached the server by now.
    let before = merged(before, ranges(&nodes).await?);
    println!(
        "killed with {} of {NODES} Nodes served, after {:?}",
        before.len(),
        begun.elapsed()
    );
    let second = manager(run.path(), "second", &kubeconfig)?;
    make(nodes.clone(), NODES - LATER..NODES).await?;
    let after = until(&nodes, "all of them", |ranges| ranges.len() == NODES).await?;
    distinct(&after)?;
    for (uid, ranges) in &before {
        ensure!(after.get(uid) == Some(ranges), "a Node's ranges changed: {uid}");
    }
    println!("all served after {:?}", begun.elapsed());

    for name in (0..50).map(name) {
        nodes.delete(&name, &DeleteParams::default()).await?;
    }
    make(nodes.clone(), NODES..NODES + 50).await?;
    let replaced = until(&nodes, "the new ones", |ranges| ranges.len() == NODES).await?;
    distinct(&replaced)?;
    let exit = second.stop(Duration::from_secs(10)).await?;
    ensure!(
        exit.status.is_some_and(|status| status.success()),
        "not a clean end: {}",
        second.log_tail()
    );
    println!("50 of them replaced after {:?}", begun.elapsed());
    Ok(())
}

/// Lease times are short, so that the second manager need not wait long for the first one's to run out.
fn manager(run: &Path, name: &str, kubeconfig: &Path) -> Result<Process> {
    let config: PathBuf = run.join("aws.conf");
    std::fs::write(&config, CLOUD_CONFIG)?;
    let launch = Launch::new(name, Binaries::one("outrigger-manager")?)
        .environment("AWS_ACCESS_KEY_ID", "none")
        .environment("AWS_SECRET_ACCESS_KEY", "none")
        .environment("AWS_EC2_METADATA_DISABLED", "true")
        .arguments([
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--controllers=node-ipam-controller".into(),
            "--allocate-node-cidrs".into(),
            "--cluster-cidr=10.128.0.0/14,fd00:10:128::/52".into(),
            "--configure-cloud-routes=false".into(),
            "--secure-port=0".into(),
            "--leader-elect-lease-duration=10s".into(),
            "--leader-elect-renew-deadline=8s".into(),
            "--leader-elect-retry-period=1s".into(),
        ]);
    Ok(Process::start(&launch, run)?)
}

fn name(number: usize) -> String {
    format!("node-{number:04}")
}

async fn make(nodes: Api<Node>, numbers: std::ops::Range<usize>) -> Result<()> {
    stream::iter(numbers)
        .map(|number| {
            let nodes = nodes.clone();
            async move {
                let node = serde_json::from_value(json!({"metadata": {"name": name(number)}}))?;
                nodes.create(&PostParams::default(), &node).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(4)
        .try_collect()
        .await
}

/// The Nodes that have ranges, by UID.
type Ranges = BTreeMap<String, Vec<String>>;

async fn ranges(nodes: &Api<Node>) -> Result<Ranges> {
    let listed = nodes.list(&ListParams::default()).await?;
    let ranges = listed.into_iter().filter_map(|node| {
        let ranges = node.spec?.pod_cidrs.filter(|ranges| !ranges.is_empty())?;
        Some((node.metadata.uid?, ranges))
    });
    Ok(ranges.collect())
}

fn merged(mut before: Ranges, now: Ranges) -> Ranges {
    before.extend(now);
    before
}

async fn until(nodes: &Api<Node>, what: &str, holds: impl Fn(&Ranges) -> bool) -> Result<Ranges> {
    let probe = async || {
        let now = ranges(nodes).await.context("the Nodes")?;
        ensure!(holds(&now), "{} Nodes have ranges", now.len());
        anyhow::Ok(Some(now))
    };
    Ok(wait::until(what, PATIENCE, probe).await?)
}

fn distinct(ranges: &Ranges) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (uid, ranges) in ranges {
        ensure!(ranges.len() == 2, "{uid} has {ranges:?}, not one of each family");
        for range in ranges {
            ensure!(seen.insert(range), "{range} is given twice");
        }
    }
    Ok(())
}
