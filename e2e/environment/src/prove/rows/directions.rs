//! Steps in both directions, also without the migration object or without our manager.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use outrigger_cluster_harness::leases::Lease;
use serde_json::json;

use super::Cluster;
use crate::CONTROL_PLANE;
use crate::demo::migrate::QUIET;
use crate::operator::{NEW_MANAGER, OLD_MANAGER, has_flag};

const WITHOUT_OBJECT: Duration = Duration::from_secs(20);
/// Longer than a lease and an offer.
const INSTALLED: Duration = Duration::from_secs(30);

/// Scenario 1: both directions.
pub(super) async fn there_and_back(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster.roll_back().await?;
    cluster.migrate().await?;
    cluster.complete().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// Scenario 2: back to InTree after Complete, and a second migration.
pub(super) async fn second_run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    let original = command(cluster).await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.complete().await?;

    cluster.environment.set_phase("Migrate").await?;
    cluster.roll_back().await?;
    in_tree(cluster, &original).await?;

    let latch = cluster.environment.latch();
    cluster.expect(latch.is_none(), &format!("no latch is left in InTree: {latch:?}"));
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.complete().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

async fn in_tree(cluster: &mut Cluster, original: &[String]) -> Result<()> {
    cluster
        .progress
        .step("Back to InTree: the old manager has its original command line");
    cluster.old_manager_owns().await?;
    cluster.environment.set_phase("InTree").await?;
    cluster.environment.apply_phase("InTree").await?;
    let what = "the old manager runs with its original command line";
    cluster.wait_rolled(OLD_MANAGER, what, |argv| argv == original).await?;

    let stored = command(cluster).await?;
    cluster.expect(
        stored == original,
        &format!("the stored command line is the original one: {stored:?} and {original:?}"),
    );
    tokio::time::sleep(QUIET * 3).await;
    cluster.environment.snapshot().await
}

async fn command(cluster: &Cluster) -> Result<Vec<String>> {
    let api: Api<Deployment> = Api::namespaced(cluster.environment.management_admin.clone(), CONTROL_PLANE);
    let spec = api.get(OLD_MANAGER).await?.spec.and_then(|spec| spec.template.spec);
    let mut containers = spec.map(|spec| spec.containers).unwrap_or_default().into_iter();
    let command = containers.next().and_then(|one| one.command);
    command.context("a container without command")
}

/// Scenario 11: the migration object is deleted, created again, and deleted during a step back.
pub(super) async fn blind(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.two_managers().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;

    cluster
        .progress
        .step("The object is deleted: the owner stays, and a restarted manager follows the latch");
    let before = cluster.environment.holder(Lease::M);
    cluster.environment.delete_migration().await?;
    tokio::time::sleep(WITHOUT_OBJECT).await;
    let after = cluster.environment.holder(Lease::M);
    cluster.expect(
        after == before && before.is_some(),
        "the holder keeps M without the object",
    );
    cluster.end_leader(true).await?;
    cluster.wait_holder(Lease::M, before.as_deref()).await?;

    cluster.progress.step("The object is created again in Migrate");
    cluster.environment.create_migration_in("Migrate").await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    tokio::time::sleep(QUIET).await;

    without_object(cluster).await?;
    cluster
        .progress
        .step("The object is created again in Prepare: the step back is carried out");
    cluster.environment.create_migration_in("Prepare").await?;
    cluster.old_manager_holds().await?;
    cluster.settle().await
}

/// The holder of K is proven all the time, so ours keeps M beside an old manager with leader migration.
async fn without_object(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("The object is deleted, and the old manager is rolled back by hand");
    let environment = &cluster.environment;
    environment.delete_migration().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (leader, owner) = (environment.holder(Lease::K), environment.holder(Lease::M));
    let since = Timestamp::now();
    environment.deploy_guarded().await?;
    let what = "the old manager runs in-tree with leader migration";
    cluster
        .wait_rolled(OLD_MANAGER, what, has_flag("--cloud-provider=aws"))
        .await?;
    cluster.wait_holder(Lease::K, leader.as_deref()).await?;
    tokio::time::sleep(WITHOUT_OBJECT).await;
    cluster.keeps_m("without the object", since, owner.as_deref());
    Ok(())
}

/// Scenario 13: the manager is uninstalled before the operator goes back, and installed again in `InTree`.
pub(super) async fn uninstalled(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;

    cluster
        .progress
        .step("The manager is uninstalled, and the operator goes back to InTree");
    cluster.environment.scale(NEW_MANAGER, 0).await?;
    cluster.roll_back().await?;
    in_tree_without_a_manager(cluster).await?;
    cluster.environment.apply_phase("InTree").await?;
    let guarded = has_flag("--enable-leader-migration");
    let what = "the old manager runs in its original form";
    cluster.wait_rolled(OLD_MANAGER, what, |argv| !guarded(argv)).await?;

    cluster.progress.step("The manager is installed again in InTree");
    cluster.environment.scale(NEW_MANAGER, 1).await?;
    cluster.wait_rolled(NEW_MANAGER, "our manager runs", |_| true).await?;
    tokio::time::sleep(INSTALLED).await;
    let holder = cluster.environment.holder(Lease::M);
    let taken = holder.as_ref().is_some_and(|holder| cluster.is_ours(holder));
    cluster.expect(!taken, &format!("M is not acquired in InTree: {holder:?}"));

    cluster.progress.step("A second migration");
    cluster.wait_holder(Lease::C, None).await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// The status names our manager as the owner for ever, so the API server refuses InTree without mode Audit.
async fn in_tree_without_a_manager(cluster: &mut Cluster) -> Result<()> {
    let refused = cluster.environment.change_migration(&json!({"phase": "InTree"})).await;
    let message = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    cluster.expect(
        message.contains("the cloud-controller-manager owns the controllers"),
        &format!("InTree is refused while the status names our manager as the owner: {message}"),
    );

    let audit = json!({"phase": "InTree", "mode": "Audit"});
    cluster.environment.change_migration(&audit).await?;
    cluster
        .environment
        .change_migration(&json!({"mode": "Enforce"}))
        .await?;
    Ok(())
}
