//! Scenario 16: a rolling update between versions of our manager whose latches differ.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use serde_json::{Value, json};

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::prove::cluster::TAKEN;

const NAMED: Duration = Duration::from_secs(30);
/// A lease duration without a live holder, and one pass.
const GATHERED: Duration = Duration::from_secs(30);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
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
    let next = next_owner(cluster, before.as_deref()).await?;

    cluster.standby_waits().await?;
    cluster.end_leader(false).await?;
    next_owner(cluster, Some(&next)).await?;
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

async fn next_owner(cluster: &Cluster, before: Option<&str>) -> Result<String> {
    let (environment, progress) = (&cluster.environment, &cluster.progress);
    environment.wait_holder(Lease::M, before, TAKEN, progress).await
}

/// A format that this version does not know: it waits, and says so.
async fn newer_format(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The latch has a newer format");
    let text = cluster.environment.latch().context("no latch")?;
    let newer = with(&text, "version", json!(2))?;
    cluster.standby_waits().await?;
    let before = cluster.environment.holder(Lease::C);
    let ended = Timestamp::now();
    ends_with(cluster, &newer).await?;
    let progress = cluster.progress.clone();
    cluster
        .environment
        .wait_holder(Lease::C, before.as_deref(), TAKEN, &progress)
        .await?;
    let seen = &*cluster;
    let named = async || {
        let said = seen.condition("ControlPlaneMigrated").await?;
        Ok(if said.contains("has format 2") {
            Ok(said)
        } else {
            Err(said)
        })
    };
    let said = progress.wait("the status names the format", TAKEN, named).await?;
    cluster.measured(
        "a newer format: named in ControlPlaneMigrated",
        ended,
        Timestamp::now(),
        NAMED,
    );
    cluster.notes.push(format!("a newer format: {said}"));

    tokio::time::sleep(Duration::from_secs(20)).await;
    let holder = cluster.environment.holder(Lease::M);
    cluster.expect(
        holder == before,
        &format!("M is not acquired with a newer format: {holder:?}"),
    );
    let now = cluster.environment.latch();
    cluster.expect(
        now.as_ref() == Some(&newer),
        &format!("the annotation is kept: {now:?}"),
    );
    remove(cluster).await
}

/// Without the annotation the next process gathers the evidence again.
async fn remove(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The annotation is removed");
    let progress = cluster.progress.clone();
    let removed = Timestamp::now();
    let before = cluster.environment.holder(Lease::M);
    cluster.environment.set_latch(None).await?;
    cluster.end_leader(false).await?;
    cluster
        .environment
        .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
        .await?;
    let acquired = acquired(cluster);
    cluster.measured("without the annotation: M is held", removed, acquired, GATHERED);
    cluster
        .environment
        .wait_condition("ControlPlaneMigrated", TAKEN, &progress)
        .await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

fn acquired(cluster: &Cluster) -> Timestamp {
    let latest = cluster.environment.leases.latest(Lease::M);
    latest.and_then(|change| change.acquired).unwrap_or_else(Timestamp::now)
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
