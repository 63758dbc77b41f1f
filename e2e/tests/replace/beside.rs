//! Beside the incumbent's manifests, by `docs/operations/replace.md`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::commands::Section;
use super::rights::{Observer, rules};
use super::stage::Stage;
use super::{INCUMBENT, OURS, incumbent};

const PAGE: &str = "docs/operations/replace.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_the_page_replace_the_incumbent_and_return() {
    let started = Stage::start("replace-beside-", "127.72.0.0/16").await;
    let stage = started.expect("a cluster");
    // The cluster still stands, so that its logs are kept.
    if let Err(error) = there_and_back(&stage).await {
        panic!("{error:#}");
    }
}

async fn there_and_back(stage: &Stage) -> Result<()> {
    let objects = incumbent::manifests(&stage.flags(incumbent::ACCOUNT)?);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(stage.shell.folder().join("published.json"), list.to_string())?;
    stage.shell.run("kubectl apply -f published.json").await?;
    stage.wait_served().await?;
    let first = stage.leader(INCUMBENT).await?;
    stage.wait_idle(&first).await?;
    let (first, of_each_start) = stage.restarted(&first).await?;

    let account = stage.incumbents_account().await?;
    let granted = rules(&account).await?;
    let rights = Observer::start(account.clone()).await?;
    let before = stage.before(first.clone()).await?;
    stage.shell.follow(&Section::read(PAGE, "Before you begin")?).await?;
    let beside = Section::read(PAGE, "Install beside it")?;
    write_overlay(stage, &beside)?;
    stage.shell.follow(&beside).await?;
    let holder = stage.leader(INCUMBENT).await?;
    ensure!(
        holder.span.process == first.span.process,
        "{} leads",
        holder.span.process
    );

    stage.shell.follow(&Section::read(PAGE, "Switch")?).await?;
    let ours = stage.switched(&before, OURS, &BTreeSet::new()).await?;
    rights.nothing_lost_before(stage.end_of(&first)?)?;

    let before = stage.before(ours.clone()).await?;
    stage.shell.follow(&Section::read(PAGE, "Return")?).await?;
    stage.switched(&before, INCUMBENT, &of_each_start).await?;
    stage.end_of(&ours)?;
    rights.nothing_lost_before(jiff::Timestamp::now())?;
    ensure!(rules(&account).await? == granted, "the rights of the incumbent changed");
    stage.wait_served().await
}

/// The overlay of the page, with the flags of this environment.
fn write_overlay(stage: &Stage, section: &Section) -> Result<()> {
    let blocks = section.blocks("yaml");
    let [overlay] = blocks.as_slice() else {
        anyhow::bail!("{} overlays", blocks.len())
    };
    let add = |flag: String| json!({"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag});
    let flags: Vec<Value> = stage.flags(OURS)?.into_iter().map(add).collect();
    let patch = json!({"target": {"kind": "DaemonSet", "name": OURS}, "patch": Value::from(flags).to_string()});

    let mut overlay: Value = serde_saphyr::from_str(overlay)?;
    let patches = overlay["patches"].as_array_mut().context("patches")?;
    patches.push(patch);
    let folder = stage.shell.folder().join("overlays/replace");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("kustomization.yaml"), overlay.to_string())?;
    Ok(())
}
