//! In-tree managers without leader migration that wait for K beside a live external leader, and lead.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use super::old_leader::{self, Lead};
use crate::CLUSTER;
use crate::operator::OLD_MANAGER;

const WAITS: Duration = Duration::from_secs(60);
const BESIDE: &str = "kcm-beside";
const RELEASE: Duration = Duration::from_secs(12);
const LED: Duration = Duration::from_secs(45);
const GUARDED: &str = "kcm-guarded";
const SHORT: Duration = Duration::from_secs(15);
/// From the end of the unguarded manager until ours owns again.
const OWNER_AGAIN: Duration = Duration::from_secs(30);
/// The leases of our leader expire, and the next one gathers the evidence.
const WITHOUT_LATCH: Duration = Duration::from_secs(40);

/// Scenario 5: it waits, leads when the external manager has ended, and ends, in Migrate and in Complete.
pub(super) async fn unguarded_leads(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let _ports = old_leader::busy(cluster, 2).await?;
    waits(cluster, "Migrate").await?;
    leads_alone(cluster, "Migrate").await?;
    cluster.complete().await?;
    waits(cluster, "Complete").await?;
    leads_alone(cluster, "Complete").await
}

/// Scenario 29: it waits in Migrate, and in Complete, where it leads in the end.
pub(super) async fn unguarded(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let _ports = old_leader::busy(cluster, 2).await?;
    waits(cluster, "Migrate").await?;
    cluster.environment.end_old_manager_beside(&cluster.progress).await?;
    cluster.wait_holder(Lease::M, None).await?;
    cluster.complete().await?;
    waits(cluster, "Complete").await?;
    leads(cluster).await
}

async fn waits(cluster: &mut Cluster, phase: &str) -> Result<()> {
    cluster.progress.step(&format!(
        "{phase}: a kube-controller-manager without leader migration waits for K"
    ));
    let (leader, owner) = (
        cluster.environment.holder(Lease::K),
        cluster.environment.holder(Lease::M),
    );
    start(cluster).await?;
    let appeared = Timestamp::now();
    cluster.environment.mark(&format!("unguarded in {phase}"));
    tokio::time::sleep(WAITS).await;

    let now = cluster.environment.holder(Lease::K);
    cluster.expect(
        now == leader,
        &format!("{phase}: the external manager keeps K, now {now:?}"),
    );
    cluster.keeps_m(phase, appeared, owner.as_deref());
    is_named(cluster, phase).await
}

/// It blocks the next step, and is no alarm.
async fn is_named(cluster: &mut Cluster, phase: &str) -> Result<()> {
    let prepared = cluster.condition_is_true("Prepared").await?;
    let said = cluster.condition("Prepared").await?;
    let is_named = said.contains(BESIDE) && said.contains("it does not lead");
    let text = format!("{phase}: Prepared is False and names the standby: {said}");
    cluster.expect(!prepared && is_named, &text);
    cluster.notes.push(format!("{phase}, unguarded standby: {said}"));

    let alarm = alarm(cluster).await?;
    cluster.expect(!alarm, &format!("{phase}: an unguarded standby is no alarm"));
    Ok(())
}

/// Whether the newest entry of the history is an alarm.
async fn alarm(cluster: &Cluster) -> Result<bool> {
    let object = cluster.environment.migrations().get(CLUSTER).await?;
    let history = object.status.unwrap_or_default().history;
    Ok(history.last().is_some_and(|entry| entry.alarm))
}

/// The webhook would give it the form of the phase.
async fn start(cluster: &mut Cluster) -> Result<()> {
    cluster.environment.stop_webhook().await?;
    cluster.environment.start_old_manager_beside(&[]).await?;
    cluster.environment.start_webhook().await
}

async fn leads(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("Complete: it leads");
    let process = beside(cluster)?;
    let (leader, from) = old_leader::takes_k(cluster, &process).await?;
    led(
        cluster,
        "Complete, the unguarded standby leads",
        (process, leader, from),
    )
    .await
}

/// The external manager ends, and starts again before the unguarded one ends.
async fn leads_alone(cluster: &mut Cluster, phase: &str) -> Result<()> {
    cluster
        .progress
        .step(&format!("{phase}: the external manager ends, and it leads"));
    let process = beside(cluster)?;
    let before = cluster.environment.holder(Lease::K).context("nobody holds K")?;
    cluster.environment.scale(OLD_MANAGER, 0).await?;
    let (leader, from) = old_leader::acquires_k(cluster, &process, &before).await?;

    let leases = &cluster.environment.leases;
    let released = leases
        .wait_until(Lease::M, RELEASE * 2, |change| change.holder.is_none())
        .await;
    let released = released.context("M was not released")?.at;
    cluster.measured(&format!("{phase}: M released"), from, released, RELEASE);
    led(cluster, &format!("{phase}, unguarded"), (process, leader, from)).await
}

/// The process of the unguarded manager.
fn beside(cluster: &Cluster) -> Result<String> {
    let spans = cluster.environment.runner.spans();
    let beside = spans.iter().rev().find(|span| span.pod == BESIDE);
    Ok(beside.context("no other old manager runs")?.process.clone())
}

/// Its lead, with its process, its identity, and when it acquired K.
async fn led(cluster: &mut Cluster, what: &str, (process, leader, from): (String, String, Timestamp)) -> Result<()> {
    tokio::time::sleep(LED).await;
    old_leader::still_free(cluster, what);
    let alarm = alarm(cluster).await?;
    cluster.expect(alarm, &format!("{what}: the history has the alarm"));

    cluster.environment.scale(OLD_MANAGER, 1).await?;
    let until = cluster.environment.end_old_manager_beside(&cluster.progress).await?;
    let lead = Lead {
        what: what.to_owned(),
        process,
        from,
        until,
    };
    old_leader::judge(cluster, &lead);
    old_leader::owner_again(cluster, what, &leader).await
}

/// Scenario 31: one manager is still guarded when the evidence is lost, by an alarm and by a removed latch.
pub(super) async fn alarm_in_roll(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster.progress.step("Migrate: one of two managers is still guarded");
    cluster.environment.stop_webhook().await?;
    start_guarded(cluster).await?;
    let holder = cluster.environment.holder(Lease::M);
    let ours = holder.as_ref().is_some_and(|holder| cluster.is_ours(holder));
    cluster.expect(ours, &format!("ours holds M beside a guarded manager, now {holder:?}"));

    cluster.progress.step("One without leader migration appears for 15 s");
    cluster.environment.start_old_manager_beside(&[]).await?;
    cluster.environment.mark("unguarded");
    tokio::time::sleep(SHORT).await;
    let ended = cluster.environment.end_old_manager_beside(&cluster.progress).await?;
    cluster.environment.mark("unguarded ended");
    owner_before_roll(cluster, "an alarm", ended, None, OWNER_AGAIN).await?;

    cluster.progress.step("The latch is removed, and our leader ends");
    let before = cluster.environment.holder(Lease::M);
    let ended = Timestamp::now();
    cluster.end_leader(true).await?;
    cluster.environment.set_latch(None).await?;
    owner_before_roll(cluster, "a removed latch", ended, before, WITHOUT_LATCH).await?;

    end_guarded(cluster).await?;
    cluster.environment.start_webhook().await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await
}

async fn start_guarded(cluster: &Cluster) -> Result<()> {
    let guarded = ["--enable-leader-migration".to_owned()];
    cluster.environment.start_old_manager_pod(GUARDED, &guarded).await?;
    tokio::time::sleep(SHORT).await;
    Ok(())
}

async fn end_guarded(cluster: &Cluster) -> Result<()> {
    let environment = &cluster.environment;
    environment.end_old_manager_pod(GUARDED, &cluster.progress).await?;
    Ok(())
}

/// Where no process owns before the last manager is rolled, it is rolled after a minute.
async fn owner_before_roll(
    cluster: &mut Cluster,
    what: &str,
    since: Timestamp,
    before: Option<String>,
    limit: Duration,
) -> Result<()> {
    let what = format!("{what}: an owner again before the last manager is rolled");
    let is_next = |holder: &Option<String>| holder.is_some() && *holder != before;
    let leases = &cluster.environment.leases;
    let held = leases
        .wait_until(Lease::M, limit * 2, |change| is_next(&change.holder))
        .await;
    if let Some(change) = held {
        cluster.measured(&what, since, change.acquired.unwrap_or(change.at), limit);
        return cluster.settle().await;
    }

    cluster.expect(false, &format!("{what}, within {} s", limit.as_secs() * 2));
    end_guarded(cluster).await?;
    cluster.wait_holder(Lease::M, before.as_deref()).await?;
    start_guarded(cluster).await
}
