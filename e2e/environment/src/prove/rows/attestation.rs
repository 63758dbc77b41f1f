//! The operator's word where no old manager can be read.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use serde_json::{Value, json};

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::{NEW_MANAGER, OLD_MANAGER, has_flag};

/// How long a phase lasts beside the in-tree leader.
const BESIDE: Duration = Duration::from_secs(60);
const GUARDED: &str = "--enable-leader-migration";

/// Says now that the old managers have the form of a phase. A value that is there already would be no new word.
pub(super) async fn attest(cluster: &Cluster, phase: &str) -> Result<()> {
    for value in [json!(null), json!({"phase": phase})] {
        let fields = json!({"attestation": value});
        cluster.environment.change_migration(&fields).await?;
    }
    Ok(())
}

/// No target selects an old manager.
fn targets() -> Value {
    json!([{"profile": "Nodes"}])
}

/// Scenario 33: the attestation of the first migration is still there in the second one.
pub(super) async fn stale(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster
        .environment
        .change_migration(&json!({"targets": targets()}))
        .await?;
    first_run(cluster).await?;
    back_without_manager(cluster).await?;
    again(cluster, &["Prepare"]).await?;
    first_run(cluster).await?;
    back_to_in_tree(cluster).await?;
    again(cluster, &["Prepare", "Migrate"]).await
}

async fn first_run(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("A migration with attestations");
    let environment = &cluster.environment;
    environment.set_phase("Prepare").await?;
    environment.deploy_guarded().await?;
    cluster
        .wait_rolled(OLD_MANAGER, "the old manager has leader migration", has_flag(GUARDED))
        .await?;
    cluster.old_manager_holds().await?;
    attest(cluster, "Prepare").await?;
    cluster.wait_condition("Prepared").await?;

    let before = environment.holder(Lease::M);
    environment.set_phase("Migrate").await?;
    environment.deploy_external().await?;
    attest(cluster, "Migrate").await?;
    environment
        .wait_handed_over(before.as_deref(), ROLL, &cluster.progress)
        .await?;
    cluster.settle().await
}

/// The manager is stopped while the phase is InTree, so that lease C keeps the latch.
async fn back_without_manager(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("Back to InTree without our manager: an attestation of Prepare stays in the object");
    cluster.environment.set_phase("Prepare").await?;
    cluster.roll_back_by_hand().await?;
    attest(cluster, "Prepare").await?;
    tokio::time::sleep(QUIET).await;
    cluster.environment.scale(NEW_MANAGER, 0).await?;
    cluster.environment.set_phase("InTree").await?;
    original(cluster).await
}

async fn back_to_in_tree(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("Back to InTree: the attestation of Migrate stays in the object");
    cluster.environment.set_phase("Prepare").await?;
    cluster.roll_back_by_hand().await?;
    cluster.environment.set_phase("InTree").await?;
    original(cluster).await?;
    // The status names the in-tree manager as the owner meanwhile.
    cluster.settle().await
}

async fn original(cluster: &Cluster) -> Result<()> {
    let original = cluster.environment.old_manager_flags()?;
    let before = cluster.environment.holder(Lease::K);
    cluster.environment.deploy_flags(original.into_iter()).await?;
    let what = "the old manager runs in its original form";
    cluster
        .wait_rolled(OLD_MANAGER, what, |argv| !has_flag(GUARDED)(argv))
        .await?;
    cluster.wait_holder(Lease::K, before.as_deref()).await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// The old manager is not rolled: the same process leads as in InTree. The object has an attestation of the last phase.
async fn again(cluster: &mut Cluster, phases: &[&str]) -> Result<()> {
    let (last, before) = phases.split_last().context("at least one phase")?;
    cluster
        .progress
        .step(&format!("{last} again, and the old manager stays in its original form"));
    let leader = cluster.environment.holder(Lease::K);
    let from = Timestamp::now();
    for phase in before {
        cluster.environment.set_phase(phase).await?;
        tokio::time::sleep(QUIET).await;
    }
    refused_and_created_again(cluster, last).await?;
    // It is stopped where it did not see phase InTree.
    cluster.environment.scale(NEW_MANAGER, 1).await?;

    tokio::time::sleep(BESIDE).await;
    let now = cluster.environment.holder(Lease::K);
    cluster.expect(
        now == leader && now.is_some(),
        &format!("{last} again: the in-tree manager of InTree leads, now {now:?}"),
    );
    not_acquired(cluster, last, from);
    let migrated = cluster.condition_is_true("ControlPlaneMigrated").await?;
    cluster.expect(
        !migrated,
        &format!("{last} again: the condition ControlPlaneMigrated is not True beside an in-tree leader"),
    );
    cluster.environment.snapshot().await
}

/// The API server refuses the phase. It cannot refuse an object that is created with both, for example from a backup, and
/// API servers before 1.25 refuse neither.
async fn refused_and_created_again(cluster: &mut Cluster, phase: &str) -> Result<()> {
    let answer = cluster.environment.set_phase(phase).await;
    let refusal = answer.err().map(|error| format!("{error:#}"));
    let names_it = refusal.as_ref().is_some_and(|text| text.contains("spec.attestation"));
    cluster.expect(
        names_it,
        &format!("{phase} with its old attestation is refused: {refusal:?}"),
    );

    cluster.environment.delete_migration().await?;
    let fields = json!({"phase": phase, "targets": targets(), "attestation": {"phase": phase}});
    cluster.environment.create_migration_of(&fields).await
}

fn not_acquired(cluster: &mut Cluster, phase: &str, from: Timestamp) {
    let changes = cluster.environment.leases.changes().into_iter();
    let mut of_m = changes.filter(|change| change.lease == Lease::M && change.at >= from);
    let taken = of_m.find(|change| change.holder.as_ref().is_some_and(|holder| cluster.is_ours(holder)));
    let marked = cluster.environment.marked(&format!("phase {phase}")).unwrap_or(from);
    let after = taken.map(|change| change.at.duration_since(marked).as_millis());
    let text =
        format!("{phase} again: M is not acquired beside the in-tree leader; acquired {after:?} ms after the phase");
    cluster.expect(after.is_none(), &text);
}
