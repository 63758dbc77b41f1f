//! Scenario 6: somebody deletes and empties leases.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::leases::{Lease, LeaseChange};

use super::Cluster;
use crate::faults::LeaseFault;

/// A Go manager polls every 2 s, and the record of a live holder lasts 15 s.
const KEPT: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    meddle(cluster, "Prepare", &[Lease::C, Lease::M, Lease::K]).await?;

    // Our manager competes for M, and the old one still holds it.
    cluster.progress.step("Migrate, before the old manager is rolled");
    cluster.environment.set_phase("Migrate").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    meddle(cluster, "Migrate, held by the old manager", &[Lease::M]).await?;

    cluster.migrate().await?;
    meddle(cluster, "Migrate", &[Lease::C, Lease::M, Lease::K]).await?;
    cluster.environment.snapshot().await
}

async fn meddle(cluster: &mut Cluster, phase: &str, leases: &[Lease]) -> Result<()> {
    for fault in [LeaseFault::Delete, LeaseFault::Empty] {
        for lease in leases {
            meddle_with(cluster, phase, *lease, fault).await?;
        }
    }
    Ok(())
}

/// The holder keeps its lease, and the latch survives.
async fn meddle_with(cluster: &mut Cluster, phase: &str, lease: Lease, fault: LeaseFault) -> Result<()> {
    let before = cluster.environment.holder(lease);
    let latch = cluster.environment.latch();
    cluster.environment.mark(&format!("{phase}: {fault:?} {lease}"));
    cluster.environment.break_lease(lease, fault).await?;

    let held_again = |change: &LeaseChange| change.holder.is_some();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let after = cluster.environment.leases.wait_until(lease, KEPT, held_again).await;
    tokio::time::sleep(Duration::from_secs(4)).await;

    let after = after.and_then(|change| change.holder);
    let text = format!("{phase}, {fault:?} {lease}: the holder {before:?} keeps the lease, now {after:?}");
    cluster.progress.say(&text);
    cluster.expect(after == before && before.is_some(), &text);
    let now = cluster.environment.latch();
    cluster.expect(
        now == latch && latch.is_some(),
        &format!("{phase}, {fault:?} {lease}: the latch {latch:?} survives, now {now:?}"),
    );
    Ok(())
}
