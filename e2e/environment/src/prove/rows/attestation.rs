//! The operator's word where no old manager can be read.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use serde_json::json;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::OLD_MANAGER;

/// How long phase Migrate lasts beside the in-tree leader.
const BESIDE: Duration = Duration::from_secs(60);

/// Says that the old managers have the form of a phase.
pub(super) async fn attest(cluster: &Cluster, phase: &str) -> Result<()> {
    let fields = json!({"attestedPhase": phase});
    cluster.environment.change_migration(&fields).await
}

/// Scenario 33: the attestation of the first migration is still there in the second one.
pub(super) async fn stale(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    // No target selects an old manager.
    let targets = json!({"targets": [{"profile": "Nodes"}]});
    cluster.environment.change_migration(&targets).await?;
    first_run(cluster).await?;
    back_to_in_tree(cluster).await?;
    second_run(cluster).await
}

async fn first_run(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The first migration, with attestations");
    let environment = &cluster.environment;
    environment.set_phase("Prepare").await?;
    environment.deploy_guarded().await?;
    let guarded = crate::operator::has_flag("--enable-leader-migration");
    cluster
        .wait_rolled(OLD_MANAGER, "the old manager has leader migration", guarded)
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

async fn back_to_in_tree(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("Back to InTree: the attestation stays in the object");
    cluster.environment.set_phase("Prepare").await?;
    cluster.roll_back_by_hand().await?;
    cluster.environment.set_phase("InTree").await?;
    let original = cluster.environment.old_manager_flags()?;
    let before = cluster.environment.holder(Lease::K);
    cluster.environment.deploy_flags(original.into_iter()).await?;
    let guarded = crate::operator::has_flag("--enable-leader-migration");
    let what = "the old manager runs in its original form";
    cluster.wait_rolled(OLD_MANAGER, what, |argv| !guarded(argv)).await?;
    cluster.wait_holder(Lease::K, before.as_deref()).await?;
    tokio::time::sleep(QUIET * 3).await;
    cluster.environment.snapshot().await
}

/// The old manager is not rolled: the same process leads as in InTree.
async fn second_run(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("Prepare and Migrate again, and the old manager stays in its original form");
    let leader = cluster.environment.holder(Lease::K);
    let from = Timestamp::now();
    for phase in ["Prepare", "Migrate"] {
        if let Err(error) = cluster.environment.set_phase(phase).await {
            let note = format!("{phase} with the old attestation is refused: {error:#}");
            cluster.progress.say(&note);
            cluster.notes.push(note);
            return cluster.settle().await;
        }
        tokio::time::sleep(QUIET).await;
    }

    tokio::time::sleep(BESIDE).await;
    let now = cluster.environment.holder(Lease::K);
    cluster.expect(
        now == leader && now.is_some(),
        &format!("the in-tree manager of InTree leads, now {now:?}"),
    );
    not_acquired(cluster, from);
    let migrated = cluster.condition_is_true("ControlPlaneMigrated").await?;
    cluster.expect(
        !migrated,
        "the condition ControlPlaneMigrated is not True beside an in-tree leader",
    );
    cluster.environment.snapshot().await
}

fn not_acquired(cluster: &mut Cluster, from: Timestamp) {
    let changes = cluster.environment.leases.changes().into_iter();
    let mut of_m = changes.filter(|change| change.lease == Lease::M && change.at >= from);
    let taken = of_m.find(|change| change.holder.as_ref().is_some_and(|holder| cluster.is_ours(holder)));
    let after = taken.as_ref().map(|change| {
        let markers = cluster.environment.marked("phase Migrate");
        change.at.duration_since(markers.unwrap_or(from)).as_millis()
    });
    let text = format!("M is not acquired beside the in-tree leader; acquired {after:?} ms after phase Migrate");
    cluster.expect(taken.is_none(), &text);
}
