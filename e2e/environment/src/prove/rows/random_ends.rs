//! Scenario 10: our leader ends at random moments, also in the middle of steps in both directions.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::prove::cluster::TAKEN;

const ROUNDS: usize = 4;
/// The longest pause before an end in a phase.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest pause before an end in a step: about as long as the step.
const STEP: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
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
    let progress = cluster.progress.clone();
    for round in 0..ROUNDS {
        cluster.standby_waits().await?;
        tokio::time::sleep(cluster.random.below(PAUSE)).await;
        let before = cluster.environment.holder(Lease::M);
        cluster.end_leader((round % 2 == 0) == first).await?;
        cluster
            .environment
            .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
            .await?;
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
