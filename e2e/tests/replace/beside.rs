//! Beside the incumbent's manifests, by `docs/operations/replace.md`: with its published DaemonSet, and with its objects in
//! our words where the data is absent.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::process::free_port;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::commands::Section;
use super::rights::{Observer, rules};
use super::{INCUMBENT, OURS, incumbent};

const PAGE: &str = "docs/operations/replace.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_the_page_replace_the_incumbent_and_return() {
    let started = Cluster::start("replace-beside-", "127.72.0.0/16").await;
    let cluster = started.expect("a cluster");
    let flags = cluster.flags(incumbent::ACCOUNT).expect("flags");
    // The cluster still stands, so that its logs are kept.
    if let Err(error) = there_and_back(&cluster, incumbent::manifests(&flags)).await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_the_page_replace_the_published_daemon_set_and_return() {
    if incumbent::published(&[]).expect("the published file").is_none() {
        return;
    }
    let started = Cluster::start("replace-published-", "127.73.0.0/16").await;
    let cluster = started.expect("a cluster");
    let flags = cluster.flags(incumbent::ACCOUNT).expect("flags");
    let objects = incumbent::published(&flags).expect("the published file");
    // The cluster still stands, so that its logs are kept.
    if let Err(error) = there_and_back(&cluster, objects.expect("the data")).await {
        panic!("{error:#}");
    }
}

async fn there_and_back(cluster: &Cluster, objects: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(cluster.shell.folder().join("published.json"), list.to_string())?;
    cluster.shell.run("kubectl apply -f published.json").await?;
    cluster.wait_served().await?;
    let first = cluster.leader(INCUMBENT).await?;
    cluster.wait_idle(&first).await?;
    let account = cluster.incumbents_account().await?;
    let granted = rules(&account).await?;
    let rights = Observer::start(account.clone()).await?;
    let (first, of_each_start) = cluster.restarted(&first).await?;

    let before = cluster.before(first.clone()).await?;
    cluster.shell.follow(&Section::read(PAGE, "Before you begin")?).await?;
    let beside = Section::read(PAGE, "Install beside it")?;
    write_overlay(cluster, &beside)?;
    cluster.shell.follow(&beside).await?;
    let holder = cluster.leader(INCUMBENT).await?;
    ensure!(
        holder.span.process == first.span.process,
        "{} leads",
        holder.span.process
    );

    cluster.shell.follow(&Section::read(PAGE, "Switch")?).await?;
    let ours = cluster.switched(&before, OURS, &BTreeSet::new()).await?;
    rights.nothing_lost_before(cluster.end_of(&first)?)?;

    let before = cluster.before(ours.clone()).await?;
    cluster.shell.follow(&Section::read(PAGE, "Return")?).await?;
    cluster.switched(&before, INCUMBENT, &of_each_start).await?;
    cluster.end_of(&ours)?;
    rights.nothing_lost_before(jiff::Timestamp::now())?;
    ensure!(rules(&account).await? == granted, "the rights of the incumbent changed");
    cluster.wait_served().await
}

/// The overlay of the page, with the flags of this environment.
fn write_overlay(cluster: &Cluster, section: &Section) -> Result<()> {
    let blocks = section.blocks("yaml");
    let [overlay] = blocks.as_slice() else {
        anyhow::bail!("{} overlays", blocks.len())
    };
    let add = |flag: String| json!({"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag});
    let mut changes: Vec<Value> = cluster.flags(OURS)?.into_iter().map(add).collect();
    // Tests run at the same time, so each manager has a port of its own.
    let port = free_port()?;
    changes.push(add(format!("--secure-port={port}")));
    for field in ["containerPort", "hostPort"] {
        let path = format!("/spec/template/spec/containers/0/ports/0/{field}");
        changes.push(json!({"op": "replace", "path": path, "value": port}));
    }
    let patch = json!({"target": {"kind": "DaemonSet", "name": OURS}, "patch": Value::from(changes).to_string()});

    let mut overlay: Value = serde_saphyr::from_str(overlay)?;
    let patches = overlay["patches"].as_array_mut().context("patches")?;
    patches.push(patch);
    let folder = cluster.shell.folder().join("overlays/replace");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("kustomization.yaml"), overlay.to_string())?;
    Ok(())
}
