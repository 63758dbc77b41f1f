//! Scenario 11: the migration object is deleted, created again, and deleted during a step back.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::OLD_MANAGER;
use crate::prove::cluster::TAKEN;

const WITHOUT_OBJECT: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.two_managers().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    let progress = cluster.progress.clone();

    progress.step("The object is deleted: the owner stays, and a restarted manager follows the latch");
    let before = cluster.environment.holder(Lease::M);
    cluster.environment.delete_migration().await?;
    tokio::time::sleep(WITHOUT_OBJECT).await;
    let after = cluster.environment.holder(Lease::M);
    cluster.expect(
        after == before && before.is_some(),
        "the holder keeps M without the object",
    );
    cluster.end_leader(true).await?;
    cluster
        .environment
        .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
        .await?;

    progress.step("The object is created again in Migrate");
    cluster.environment.create_migration_in("Migrate").await?;
    cluster
        .environment
        .wait_condition("ControlPlaneMigrated", TAKEN, &progress)
        .await?;
    tokio::time::sleep(QUIET).await;

    progress.step("The object is deleted, and the old manager is rolled back by hand");
    cluster.environment.delete_migration().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.environment.deploy_guarded().await?;
    let guarded = |argv: &[String]| argv.iter().any(|flag| flag == "--cloud-provider=aws");
    let what = "the old manager runs in-tree with leader migration";
    cluster
        .environment
        .wait_rolled(OLD_MANAGER, what, ROLL, &progress, guarded)
        .await?;
    cluster.old_manager_holds().await?;
    tokio::time::sleep(QUIET).await;
    cluster.environment.snapshot().await
}
