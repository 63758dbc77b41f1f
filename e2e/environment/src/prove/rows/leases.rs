//! Leases and latches that somebody else has written.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use serde_json::{Value, json};

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::faults::LeaseFault;

/// A Go manager polls every 2 s, and the record of a live holder lasts 15 s.
const KEPT: Duration = Duration::from_secs(20);
const NAMED: Duration = Duration::from_secs(30);
/// A lease duration without a live holder, and one pass.
const GATHERED: Duration = Duration::from_secs(30);
/// While the leases are left to a newer version.
const WITHOUT: Duration = Duration::from_secs(20);

/// Scenario 6: somebody deletes and empties leases.
pub(super) async fn meddled(cluster: &mut Cluster) -> Result<()> {
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

/// Scenario 16: a rolling update between versions of our manager whose latches differ.
pub(super) async fn newer_latch(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster.two_managers().await?;
    newer_field(cluster).await?;
    newer_format(cluster).await
}

/// The same format with a field that this version does not know.
async fn newer_field(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The latch has a field of a newer version");
    let text = cluster.environment.latch().context("no latch")?;
    let before = cluster.environment.holder(Lease::M);
    ends_with(cluster, &with(&text, "future", json!([1]))?).await?;
    let next = cluster.wait_holder(Lease::M, before.as_deref()).await?;

    cluster.standby_waits().await?;
    cluster.end_leader(false).await?;
    cluster.wait_holder(Lease::M, Some(&next)).await?;
    cluster.standby_waits().await?;
    cluster.complete().await?;
    tokio::time::sleep(QUIET).await;
    let now = cluster.environment.latch().unwrap_or_default();
    let kept = now.contains(r#""future":[1]"#) && now.contains(r#""phase":"Complete""#);
    cluster.expect(kept, &format!("the next version of the latch keeps the field: {now}"));
    Ok(())
}

/// SIGKILL of the leader, which leaves this latch. While it lives, it restores its own.
async fn ends_with(cluster: &Cluster, latch: &str) -> Result<()> {
    cluster.end_leader(true).await?;
    cluster.environment.set_latch(Some(latch)).await
}

/// A format that this version does not know: it leaves C to a newer version, and says so.
async fn newer_format(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The latch has a newer format");
    let text = cluster.environment.latch().context("no latch")?;
    let newer = with(&text, "version", json!(2))?;
    cluster.standby_waits().await?;
    let before = [Lease::C, Lease::M].map(|lease| cluster.environment.holder(lease));
    let ended = Timestamp::now();
    ends_with(cluster, &newer).await?;
    let words = ["NotLed", "has format 2"];
    let said = cluster
        .wait_message("ControlPlaneMigrated", &words, "the status names the format")
        .await?;
    let what = "a newer format: named in ControlPlaneMigrated";
    cluster.measured(what, ended, Timestamp::now(), NAMED);
    cluster.notes.push(format!("a newer format: {said}"));

    tokio::time::sleep(WITHOUT).await;
    for (lease, before) in [Lease::C, Lease::M].into_iter().zip(before) {
        let holder = cluster.environment.holder(lease);
        cluster.expect(
            holder == before,
            &format!("{lease} is not acquired with a newer format: {holder:?}"),
        );
    }
    let now = cluster.environment.latch();
    cluster.expect(
        now.as_ref() == Some(&newer),
        &format!("the annotation is kept: {now:?}"),
    );
    remove(cluster).await
}

/// Nothing else is done, and no process starts.
async fn remove(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The annotation is removed");
    let removed = Timestamp::now();
    let before = cluster.environment.holder(Lease::M);
    cluster.environment.set_latch(None).await?;
    let holder = cluster.wait_holder(Lease::M, before.as_deref()).await?;
    let what = "without the annotation: M is held";
    cluster.measured(what, removed, cluster.acquired(Lease::M), GATHERED);
    let started = cluster.process(&holder)?.started;
    cluster.expect(
        cluster.is_ours(&holder) && started < removed,
        &format!("{holder} is ours and has run since {started}"),
    );
    cluster.wait_condition("ControlPlaneMigrated").await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// The latch with another value of one field.
fn with(latch: &str, field: &str, value: Value) -> Result<String> {
    let mut latch: Value = serde_json::from_str(latch)?;
    latch[field] = value;
    Ok(latch.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_changes_and_the_others_stay() {
        let text = with(r#"{"phase":"Migrate","version":1}"#, "version", json!(2)).expect("it is JSON");
        assert_eq!(text, r#"{"phase":"Migrate","version":2}"#);
    }
}
