//! `helm upgrade` of the incumbent's release to the chart of the same name, and `helm rollback`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use outrigger_environment::manifests;
use serde_json::json;

use super::commands::Section;
use super::rights::Observer;
use super::stage::Stage;
use super::{INCUMBENT, OURS, incumbent};

const README: &str = "charts/aws-cloud-controller-manager/README.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_of_the_same_name_replaces_the_incumbent_and_returns() {
    let started = Stage::start("replace-in-place-", "127.71.0.0/16").await;
    let mut stage = started.expect("a cluster");
    // The cluster still stands, so that its logs are kept.
    if let Err(error) = there_and_back(&mut stage).await {
        panic!("{error:#}");
    }
}

async fn there_and_back(stage: &mut Stage) -> Result<()> {
    let values = incumbent::values(&stage.flags(incumbent::ACCOUNT)?, stage.shell.folder());
    incumbent::write_chart(&stage.shell.folder().join("published"), &values)?;
    std::fs::write(stage.shell.folder().join("your-values.yaml"), values.to_string())?;
    stage
        .shell
        .run("helm install aws-cloud-controller-manager ./published --namespace kube-system --values your-values.yaml")
        .await?;
    stage.wait_served().await?;
    let first = stage.leader(INCUMBENT).await?;
    stage.wait_idle(&first).await?;
    let (first, of_each_start) = stage.restarted(&first).await?;

    let rights = Observer::start(stage.incumbents_account().await?).await?;
    let before = stage.before(first.clone()).await?;
    stage.shell.follow(&Section::read(README, "Replace")?).await?;
    let ours = stage.switched(&before, OURS, &BTreeSet::new()).await?;
    rights.nothing_lost_before(stage.end_of(&first)?)?;

    let before = stage.before(ours.clone()).await?;
    stage.shell.follow(&Section::read(README, "Return")?).await?;
    let back = stage.switched(&before, INCUMBENT, &of_each_start).await?;
    stage.end_of(&ours)?;
    rights.nothing_lost_before(jiff::Timestamp::now())?;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "aws-cloud-controller-manager:outrigger"}});
    ensure!(
        manifests::get(&stage.admin, &role).await.is_err(),
        "the rollback leaves roles"
    );

    stage.shell.follow(&Section::read(README, "Replace")?).await?;
    stage.shell.follow(&Section::read(README, "Keep it")?).await?;
    stage.leader(OURS).await?;
    stage.end_of(&back)?;
    stage.join(3).await?;
    stage.wait_served().await
}
