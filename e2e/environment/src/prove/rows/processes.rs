//! Our leader and the old manager end or stand still.

use std::time::Duration;

use anyhow::{Context, Result};
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::OLD_MANAGER;

/// Ends of our leader in Migrate, and as many in Complete.
const ROUNDS: usize = 4;
/// Ends of the old manager in Prepare.
const OLD_ROUNDS: usize = 2;
/// The longest pause before an end in a phase.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest pause before an end in a step: about as long as the step.
const STEP: Duration = Duration::from_secs(20);
const STOPPED: Duration = Duration::from_secs(60);
/// A Go manager acts for up to its renew deadline of 10 s after it is continued.
const OVERRUN: Duration = Duration::from_secs(15);

/// Scenario 10: our leader ends at random moments, also in the middle of steps in both directions.
pub(super) async fn random_ends(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster.two_managers().await?;

    let kill = cluster.random.coin();
    rounds(cluster, kill).await?;
    step(cluster, true).await?;
    step(cluster, false).await?;
    cluster.standby_waits().await?;
    cluster.complete().await?;
    rounds(cluster, !kill).await
}

/// Ends by both signals in turn; each time another manager of ours takes over.
async fn rounds(cluster: &mut Cluster, first: bool) -> Result<()> {
    for round in 0..ROUNDS {
        cluster.standby_waits().await?;
        tokio::time::sleep(cluster.random.below(PAUSE)).await;
        let before = cluster.environment.holder(Lease::M);
        cluster.end_leader((round % 2 == 0) == first).await?;
        cluster.wait_holder(Lease::M, before.as_deref()).await?;
    }
    cluster.environment.snapshot().await
}

/// One end during a step back or forth.
async fn step(cluster: &mut Cluster, back: bool) -> Result<()> {
    cluster.standby_waits().await?;
    let (moment, kill) = (cluster.random.below(STEP), cluster.random.coin());
    let cluster = &*cluster;
    let end = async {
        tokio::time::sleep(moment).await;
        cluster.end_leader(kill).await
    };
    cluster.step_beside(back, end).await
}

/// Scenario 24: the old manager ends at random moments, also in the middle of steps in both directions.
pub(super) async fn old_ends(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    for _ in 0..OLD_ROUNDS {
        old_ends_in_prepare(cluster).await?;
    }

    for back in [false, true, false] {
        let (moment, kill) = (cluster.random.below(STEP), cluster.random.coin());
        let cluster = &*cluster;
        let end = async {
            tokio::time::sleep(moment).await;
            cluster.end_old_manager(kill).await
        };
        cluster.step_beside(back, end).await?;
    }
    cluster.complete().await
}

/// The next process of the old manager waits for the leases of the last one.
async fn old_ends_in_prepare(cluster: &mut Cluster) -> Result<()> {
    let (moment, kill) = (cluster.random.below(PAUSE), cluster.random.coin());
    tokio::time::sleep(moment).await;
    let before = cluster.environment.holder(Lease::M).context("nobody holds M")?;
    cluster.end_old_manager(kill).await?;

    let (environment, progress) = (&cluster.environment, &cluster.progress);
    environment.wait_holder(Lease::M, Some(&before), ROLL, progress).await?;
    cluster.old_manager_holds().await?;
    cluster
        .wait_rolled(OLD_MANAGER, "the old manager runs again", |_| true)
        .await?;
    environment.wait_condition("Prepared", ROLL, progress).await?;
    environment.snapshot().await
}

/// Scenario 14: the old manager stands still for a minute while it holds M, and our manager competes for M.
pub(super) async fn old_paused(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;

    cluster
        .progress
        .step("Migrate: the old manager is stopped before it is rolled");
    let environment = &cluster.environment;
    environment.set_phase("Migrate").await?;
    tokio::time::sleep(QUIET).await;
    let before = environment.holder(Lease::M).context("nobody holds M")?;
    let pod = cluster.process(&before)?.pod;

    environment.mark("old manager stopped");
    environment.pause(&pod).await?;
    let stopped = tokio::time::Instant::now();
    cluster.wait_holder(Lease::M, Some(&before)).await?;
    tokio::time::sleep_until(stopped + STOPPED).await;

    environment.mark("old manager continued");
    environment.resume(&pod)?;
    tokio::time::sleep(OVERRUN).await;
    environment.snapshot().await?;
    environment.apply_phase("Migrate").await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}
