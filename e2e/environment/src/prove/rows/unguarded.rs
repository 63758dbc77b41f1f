//! Scenario 5: an in-tree kube-controller-manager without leader migration appears and goes.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::ROLL;
use crate::operator::OLD_MANAGER;

const STAYS: Duration = Duration::from_secs(60);
const RELEASE: Duration = Duration::from_secs(12);
const OWNER_AGAIN: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    appears(cluster, "Migrate", false).await?;
    cluster.complete().await?;
    appears(cluster, "Complete", true).await
}

/// It waits for K beside the external manager, or it `leads`: the external manager is scaled to zero meanwhile.
async fn appears(cluster: &mut Cluster, phase: &str, leads: bool) -> Result<()> {
    let progress = cluster.progress.clone();
    progress.step(&format!(
        "{phase}: a kube-controller-manager without leader migration starts"
    ));
    // The webhook would give it the form of the phase.
    cluster.environment.stop_webhook().await?;
    if leads {
        cluster.environment.scale(OLD_MANAGER, 0).await?;
    }

    let appeared = Timestamp::now();
    cluster.environment.mark(&format!("unguarded in {phase}"));
    cluster.environment.start_old_manager_beside(&[]).await?;
    let released = cluster.released(Duration::from_secs(60)).await?;
    cluster.measured(&format!("{phase}: M released"), appeared, released, RELEASE);
    cluster.environment.start_webhook().await?;
    tokio::time::sleep(STAYS).await;
    cluster.expect(
        cluster.environment.holder(Lease::M).is_none(),
        "M stays free while a manager without leader migration runs",
    );

    if leads {
        cluster.environment.scale(OLD_MANAGER, 1).await?;
    }
    let ended = cluster.environment.end_old_manager_beside(&progress).await?;
    cluster.environment.mark(&format!("unguarded ended in {phase}"));
    if leads {
        let what = "the external manager runs";
        cluster
            .environment
            .wait_rolled(OLD_MANAGER, what, ROLL, &progress, |_| true)
            .await?;
    }
    cluster.environment.wait_holder(Lease::M, None, ROLL, &progress).await?;
    let acquired = cluster
        .environment
        .leases
        .latest(Lease::M)
        .and_then(|change| change.acquired);
    let what = format!("{phase}: an owner again after its end");
    cluster.measured(&what, ended, acquired.unwrap_or_else(Timestamp::now), OWNER_AGAIN);
    tokio::time::sleep(Duration::from_secs(6)).await;
    cluster.environment.snapshot().await
}
