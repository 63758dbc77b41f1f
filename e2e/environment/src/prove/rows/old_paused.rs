//! Scenario 14: the old manager stands still for a minute while it holds M, and our manager competes for M.

use std::time::Duration;

use anyhow::{Context, Result};
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::prove::cluster::TAKEN;

const STOPPED: Duration = Duration::from_secs(60);
/// A Go manager acts for up to its renew deadline of 10 s after it is continued.
const OVERRUN: Duration = Duration::from_secs(15);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;

    let progress = cluster.progress.clone();
    progress.step("Migrate: the old manager is stopped before it is rolled");
    let environment = &cluster.environment;
    environment.set_phase("Migrate").await?;
    tokio::time::sleep(QUIET).await;
    let before = environment.holder(Lease::M).context("nobody holds M")?;
    let pod = cluster.process(&before)?.pod;

    environment.mark("old manager stopped");
    environment.pause(&pod).await?;
    let stopped = tokio::time::Instant::now();
    environment
        .wait_holder(Lease::M, Some(&before), TAKEN, &progress)
        .await?;
    tokio::time::sleep_until(stopped + STOPPED).await;

    environment.mark("old manager continued");
    environment.resume(&pod)?;
    tokio::time::sleep(OVERRUN).await;
    environment.snapshot().await?;
    environment.apply_phase("Migrate").await?;
    environment
        .wait_condition("ControlPlaneMigrated", TAKEN, &progress)
        .await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}
