//! Scenario 2: back to InTree after Complete, and a second migration.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::OLD_MANAGER;

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    let original = command(cluster).await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.complete().await?;

    cluster.environment.set_phase("Migrate").await?;
    cluster.roll_back().await?;
    in_tree(cluster, &original).await?;

    let latch = cluster.environment.latch();
    cluster.expect(latch.is_none(), &format!("no latch is left in InTree: {latch:?}"));
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.complete().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

async fn in_tree(cluster: &mut Cluster, original: &[String]) -> Result<()> {
    let progress = cluster.progress.clone();
    progress.step("Back to InTree: the old manager has its original command line");
    cluster.environment.set_phase("InTree").await?;
    cluster.environment.apply_phase("InTree").await?;
    let is_original = |argv: &[String]| argv == original;
    let what = "the old manager runs with its original command line";
    cluster
        .environment
        .wait_rolled(OLD_MANAGER, what, ROLL, &progress, is_original)
        .await?;

    let stored = command(cluster).await?;
    cluster.expect(
        stored == original,
        &format!("the stored command line is the original one: {stored:?} and {original:?}"),
    );
    tokio::time::sleep(QUIET * 3).await;
    cluster.environment.snapshot().await
}

async fn command(cluster: &Cluster) -> Result<Vec<String>> {
    let api: Api<Deployment> = Api::namespaced(cluster.environment.management_admin.clone(), crate::CONTROL_PLANE);
    let spec = api.get(OLD_MANAGER).await?.spec.and_then(|spec| spec.template.spec);
    let containers = spec.map(|spec| spec.containers).unwrap_or_default();
    containers
        .into_iter()
        .next()
        .and_then(|one| one.command)
        .context("a container without command")
}
