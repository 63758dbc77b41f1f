//! Scenario 24: the old manager ends at random moments, also in the middle of steps in both directions.

use std::time::Duration;

use anyhow::{Context, Result};
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::ROLL;
use crate::operator::OLD_MANAGER;

const ROUNDS: usize = 2;
/// The longest pause before an end in a phase.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest pause before an end in a step: about as long as the step.
const STEP: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    for _ in 0..ROUNDS {
        in_prepare(cluster).await?;
    }

    step(cluster, false).await?;
    step(cluster, true).await?;
    step(cluster, false).await?;
    cluster.complete().await
}

/// The next process of the old manager waits for the leases of the last one.
async fn in_prepare(cluster: &mut Cluster) -> Result<()> {
    let (moment, kill) = (cluster.random.below(PAUSE), cluster.random.coin());
    tokio::time::sleep(moment).await;
    let before = cluster.environment.holder(Lease::M).context("nobody holds M")?;
    cluster.end_old_manager(kill).await?;

    let (environment, progress) = (&cluster.environment, &cluster.progress);
    environment.wait_holder(Lease::M, Some(&before), ROLL, progress).await?;
    cluster.old_manager_holds().await?;
    let what = "the old manager runs again";
    environment
        .wait_rolled(OLD_MANAGER, what, ROLL, progress, |_| true)
        .await?;
    environment.wait_condition("Prepared", ROLL, progress).await?;
    environment.snapshot().await
}

/// One end during a step back or forth.
async fn step(cluster: &mut Cluster, back: bool) -> Result<()> {
    let (moment, kill) = (cluster.random.below(STEP), cluster.random.coin());
    let cluster = &*cluster;
    let end = async {
        tokio::time::sleep(moment).await;
        cluster.end_old_manager(kill).await
    };
    cluster.step_beside(back, end).await
}
