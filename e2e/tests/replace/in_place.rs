//! `helm upgrade` of the incumbent's release to the chart of the same name, and `helm rollback`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use outrigger_environment::manifests;
use serde_json::json;

use super::cluster::Cluster;
use super::commands::Section;
use super::rights::Observer;
use super::{INCUMBENT, OURS, incumbent};

const README: &str = "charts/aws-cloud-controller-manager/README.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_of_the_same_name_replaces_the_incumbent_and_returns() {
    let started = Cluster::start("replace-in-place-", "127.71.0.0/16").await;
    let mut cluster = started.expect("a cluster");
    // The cluster still stands, so that its logs are kept.
    if let Err(error) = there_and_back(&mut cluster).await {
        panic!("{error:#}");
    }
}

async fn there_and_back(cluster: &mut Cluster) -> Result<()> {
    let values = incumbent::values(&cluster.flags(incumbent::ACCOUNT)?, cluster.shell.folder());
    incumbent::write_chart(&cluster.shell.folder().join("published"), &values)?;
    std::fs::write(cluster.shell.folder().join("your-values.yaml"), values.to_string())?;
    cluster
        .shell
        .run("helm install aws-cloud-controller-manager ./published --namespace kube-system --values your-values.yaml")
        .await?;
    cluster.wait_served().await?;
    let first = cluster.leader(INCUMBENT).await?;
    cluster.wait_idle(&first).await?;
    let rights = Observer::start(cluster.incumbents_account().await?).await?;
    let (first, of_each_start) = cluster.restarted(&first).await?;

    let before = cluster.before(first.clone()).await?;
    cluster.shell.follow(&Section::read(README, "Replace")?).await?;
    let ours = cluster.switched(&before, OURS, &BTreeSet::new()).await?;
    rights.nothing_lost_before(cluster.end_of(&first)?)?;

    let before = cluster.before(ours.clone()).await?;
    cluster.shell.follow(&Section::read(README, "Return")?).await?;
    let back = cluster.switched(&before, INCUMBENT, &of_each_start).await?;
    cluster.end_of(&ours)?;
    rights.nothing_lost_before(jiff::Timestamp::now())?;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "aws-cloud-controller-manager:outrigger"}});
    ensure!(
        manifests::get(&cluster.admin, &role).await.is_err(),
        "the rollback leaves roles"
    );

    cluster.shell.follow(&Section::read(README, "Replace")?).await?;
    cluster.shell.follow(&Section::read(README, "Keep it")?).await?;
    cluster.leader(OURS).await?;
    cluster.end_of(&back)?;
    cluster.join(3).await?;
    cluster.wait_served().await
}
