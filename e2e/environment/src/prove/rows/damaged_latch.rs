//! Scenario 30: the latch is damaged by hand, and our leader ends. Nobody repairs it.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;

const OWNER: Duration = Duration::from_secs(40);
/// No JSON, and JSON of the format that this version writes, without its fields.
const DAMAGED: [&str; 2] = ["{\"phase\":\"Migr", r#"{"version":1}"#];

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    damaged(cluster, "Migrate", DAMAGED[0]).await?;
    cluster.complete().await?;
    damaged(cluster, "Complete", DAMAGED[1]).await
}

/// While the leader lives, it restores its own latch.
async fn damaged(cluster: &mut Cluster, phase: &str, latch: &str) -> Result<()> {
    cluster
        .progress
        .step(&format!("{phase}: the latch is {latch:?}, and our leader ends"));
    let before = cluster.environment.holder(Lease::M);
    let ended = Timestamp::now();
    cluster.end_leader(true).await?;
    cluster.environment.set_latch(Some(latch)).await?;

    let holder = cluster.wait_holder(Lease::M, before.as_deref()).await?;
    let ours = cluster.is_ours(&holder);
    cluster.expect(ours, &format!("{phase}: ours holds M, now {holder}"));
    let what = format!("{phase}, damaged latch: M is held again");
    cluster.measured(&what, ended, cluster.acquired(Lease::M), OWNER);
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await?;

    let lease = cluster.environment.leases.latest(Lease::C);
    let annotations = lease.map(|change| change.annotations).unwrap_or_default();
    let kept = annotations.values().any(|value| value == latch);
    let text = format!("{phase}: lease C keeps the damaged text in an annotation: {annotations:?}");
    cluster.expect(kept, &text);
    let now = cluster.environment.latch();
    let text = format!("{phase}: the latch is written again, now {now:?}");
    cluster.expect(now.is_some_and(|now| now != latch), &text);
    Ok(())
}
