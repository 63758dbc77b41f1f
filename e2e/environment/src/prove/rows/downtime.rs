//! Scenario 12: migrations without evidence of leader migration. Our leader ends after each change of phase.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use outrigger_cluster_harness::leases::Lease;
use serde_json::json;

use super::Cluster;
use crate::CONTROL_PLANE;
use crate::demo::migrate::{QUIET, ROLL};
use crate::faults::LeaseFault;
use crate::operator::{NEW_MANAGER, OLD_MANAGER};

const OWNER: Duration = Duration::from_secs(20);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.two_managers().await?;
    downtime(cluster).await?;
    back_by_hand(cluster).await?;
    at_complete(cluster).await?;
    back_by_hand(cluster).await?;
    attested(cluster).await
}

/// Every old manager is stopped before ours starts.
async fn downtime(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("spec.downtime: the old manager is stopped, and started again as external");
    cluster.environment.change_migration(&json!({"downtime": true})).await?;
    cluster.environment.scale(OLD_MANAGER, 0).await?;
    none_left(cluster, "app=kube-controller-manager").await?;
    cluster.environment.set_phase("Prepare").await?;
    leader_ends(cluster, "downtime, Prepare", Lease::C).await?;

    cluster.environment.set_phase("Migrate").await?;
    cluster.environment.apply_phase("Migrate").await?;
    cluster.environment.scale(OLD_MANAGER, 1).await?;
    handed_over(cluster, None).await?;
    leader_ends(cluster, "downtime, Migrate", Lease::M).await?;
    cluster.complete().await?;
    leader_ends(cluster, "downtime, Complete", Lease::M).await?;
    cluster.environment.change_migration(&json!({"downtime": false})).await
}

/// The object and the manager are installed when the migration is over.
async fn at_complete(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("The migration starts at Complete, without a latch");
    cluster.environment.scale(NEW_MANAGER, 0).await?;
    none_left(cluster, "app.kubernetes.io/name=outrigger-manager").await?;
    cluster.environment.delete_migration().await?;
    cluster.environment.break_lease(Lease::C, LeaseFault::Delete).await?;
    let before = cluster.environment.holder(Lease::M);
    cluster.environment.deploy_external().await?;

    cluster.environment.create_migration_in("Complete").await?;
    cluster.environment.scale(NEW_MANAGER, 2).await?;
    handed_over(cluster, before.as_deref()).await?;
    leader_ends(cluster, "at Complete", Lease::M).await
}

/// No old manager can be read: no target selects one.
async fn attested(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("spec.attestation: no old manager can be read");
    cluster.old_manager_owns().await?;
    cluster.environment.set_phase("InTree").await?;
    tokio::time::sleep(QUIET).await;
    let targets = json!({"targets": [{"profile": "Nodes"}]});
    cluster.environment.change_migration(&targets).await?;
    cluster.environment.set_phase("Prepare").await?;
    attest(cluster, "Prepare").await?;
    cluster.wait_condition("Prepared").await?;
    leader_ends(cluster, "attested, Prepare", Lease::C).await?;

    let before = cluster.environment.holder(Lease::M);
    cluster.environment.set_phase("Migrate").await?;
    cluster.environment.deploy_external().await?;
    attest(cluster, "Migrate").await?;
    handed_over(cluster, before.as_deref()).await?;
    leader_ends(cluster, "attested, Migrate", Lease::M).await?;
    cluster.complete().await?;
    leader_ends(cluster, "attested, Complete", Lease::M).await
}

/// In a later write than the one that enters the phase.
async fn attest(cluster: &Cluster, phase: &str) -> Result<()> {
    let attestation = json!({"attestation": {"phase": phase}});
    cluster.environment.change_migration(&attestation).await
}

/// Back to Prepare, with the old manager in-tree with leader migration.
async fn back_by_hand(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("Back to Prepare: the old manager is rolled by hand");
    cluster.environment.set_phase("Migrate").await?;
    cluster.environment.set_phase("Prepare").await?;
    cluster.roll_back_by_hand().await
}

async fn handed_over(cluster: &Cluster, before: Option<&str>) -> Result<()> {
    let environment = &cluster.environment;
    environment.wait_handed_over(before, ROLL, &cluster.progress).await
}

/// SIGKILL of our leader; the next one holds the same lease within the bound.
async fn leader_ends(cluster: &mut Cluster, what: &str, lease: Lease) -> Result<()> {
    cluster.standby_waits().await?;
    let before = cluster.environment.holder(lease);
    let ended = Timestamp::now();
    cluster.end_leader(true).await?;

    let holder = cluster.wait_holder(lease, before.as_deref()).await?;
    let ours = cluster.process(&holder)?.component == NEW_MANAGER;
    cluster.expect(ours, &format!("{what}: ours holds {lease}"));
    let what = format!("{what}: {lease} is held again");
    cluster.measured(&what, ended, cluster.acquired(lease), OWNER);
    cluster.settle().await
}

async fn none_left(cluster: &Cluster, selector: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.environment.management_admin.clone(), CONTROL_PLANE);
    let gone = async || {
        let left = pods.list(&ListParams::default().labels(selector)).await?.items.len();
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} Pods")) })
    };
    cluster.progress.wait("no Pod is left", ROLL, gone).await
}
