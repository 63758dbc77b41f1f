//! Forged signs of an old manager, written by principals that are not trusted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::Api;
use kube::api::DeleteParams;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use super::old_leader::{self, Lead};
use super::static_pods;
use crate::demo::migrate::QUIET;
use crate::principals;

/// A write of an old manager that is as old as our acquisition of M is no sign.
const OWNED: Duration = Duration::from_secs(20);
const WATCHED: Duration = Duration::from_secs(60);
const LED: Duration = Duration::from_secs(45);
const FUTURE: &str = "2099-01-01T00:00:00Z";
const FORGED: &str = "web";

/// The Nodes of the control plane, and the one of the worker.
const CONTROL_PLANES: std::ops::Range<usize> = 0..2;
const WORKER: usize = 2;

/// Scenario 27: a user of one namespace forges `managedFields`.
pub(super) async fn service(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster.complete().await?;
    let editor = cluster.environment.namespace_editor().await?;
    principals::create_plain_service(&editor, FORGED).await?;
    tokio::time::sleep(OWNED).await;

    for (what, time) in [("now", Timestamp::now()), (FUTURE, FUTURE.parse()?)] {
        cluster
            .progress
            .step(&format!("A Service with a forged write of the old manager: {what}"));
        let (owner, from) = (cluster.environment.holder(Lease::M), Timestamp::now());
        cluster.environment.mark(&format!("forged write: {what}"));
        let stored = principals::forge_status_write(&editor, FORGED, time).await?;
        ensure!(
            stored,
            "the API server did not store the forged entry: nothing is tested"
        );
        tokio::time::sleep(WATCHED).await;
        cluster.keeps_m(&format!("forged write: {what}"), from, owner.as_deref());
        cluster.environment.snapshot().await?;
    }
    Ok(())
}

/// Scenario 28: the kubelet of a worker forges mirror Pods.
pub(super) async fn mirror_pods(cluster: &mut Cluster) -> Result<()> {
    migrated(cluster).await?;
    let _ports = old_leader::busy(cluster, WORKER + 1).await?;
    in_tree(cluster).await?;
    external(cluster).await
}

/// Old managers as static Pods on two Nodes, and a worker.
async fn migrated(cluster: &mut Cluster) -> Result<()> {
    let original = cluster.environment.old_manager_flags()?;
    let guarded = [original.clone(), vec!["--enable-leader-migration".to_owned()]].concat();
    let flags: Vec<String> = cluster.environment.external_flags()?.collect();
    for index in CONTROL_PLANES {
        cluster.environment.join_in_tree(index).await?;
        cluster.environment.label_control_plane(index).await?;
        cluster.environment.roll_static_manager(index, &original).await?;
    }
    cluster.environment.join_in_tree(WORKER).await?;
    cluster.services(WORKER + 1).await?;
    static_pods::install(cluster).await?;

    cluster.progress.step("Prepare and Migrate");
    cluster.environment.set_phase("Prepare").await?;
    static_pods::roll(cluster, CONTROL_PLANES, &guarded).await?;
    cluster.wait_condition("Prepared").await?;
    cluster.environment.set_phase("Migrate").await?;
    static_pods::roll(cluster, CONTROL_PLANES, &flags).await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// An in-tree mirror Pod is no reason to release M.
async fn in_tree(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("The worker's kubelet creates a mirror Pod of an in-tree manager");
    let (owner, from) = (cluster.environment.holder(Lease::M), Timestamp::now());
    let flags = cluster.environment.old_manager_flags()?;
    cluster.environment.mark("forged mirror Pod, in-tree");
    let address = cluster.environment.account.instances[WORKER].private_ip.clone();
    forge(cluster, &flags, &address).await?;
    tokio::time::sleep(WATCHED).await;
    cluster.keeps_m("forged mirror Pod, in-tree", from, owner.as_deref());
    remove(cluster).await?;
    cluster.wait_holder(Lease::M, None).await?;
    cluster.settle().await
}

/// An external mirror Pod proves nothing. It has the address of the Node on which an in-tree manager runs that no Pod
/// shows.
async fn external(cluster: &mut Cluster) -> Result<()> {
    cluster
        .progress
        .step("The worker's kubelet creates an external mirror Pod with the address of a hidden in-tree leader");
    let environment = &cluster.environment;
    let host = environment.account.instances[0].private_dns_name.clone();
    let address = environment.account.instances[0].private_ip.clone();
    let flags: Vec<String> = environment.external_flags()?.collect();
    let original = environment.old_manager_flags()?;
    // The static Pod of this Node is gone, and an in-tree manager runs under its host name. The host name without the
    // domain is that of a Node that is named by its instance's ID.
    environment.end_static_manager(0).await?;
    let short = host.split('.').next().unwrap_or_default().to_owned();
    let process = environment.start_hidden_manager(&short, &original)?;
    forge(cluster, &flags, &address).await?;
    let (leader, from) = static_takes_k(cluster, &process).await?;

    cluster
        .environment
        .mark("a hidden manager leads beside a forged mirror Pod");
    tokio::time::sleep(LED).await;
    let what = "forged mirror Pod, external";
    old_leader::still_free(cluster, what);
    let until = cluster.environment.kill_hidden_manager(&short).await?;
    let lead = Lead {
        what: what.to_owned(),
        process,
        from,
        until,
    };
    old_leader::judge(cluster, &lead);
    remove(cluster).await?;
    old_leader::owner_again(cluster, what, &leader).await
}

/// The other static Pod stands still, so that the hidden manager acquires K.
async fn static_takes_k(cluster: &Cluster, process: &str) -> Result<(String, Timestamp)> {
    let other = cluster.environment.static_manager(1)?;
    let before = cluster.environment.holder(Lease::K).context("nobody holds K")?;
    other.pause().await?;
    let holder = cluster.wait_holder(Lease::K, Some(&before)).await?;
    other.resume()?;
    let next = cluster.process(&holder)?.process;
    ensure!(next == process, "{next} acquired K instead of {process}");

    // It lost K, and ends. A kubelet starts it again.
    let flags: Vec<String> = cluster.environment.external_flags()?.collect();
    cluster.environment.roll_static_manager(1, &flags).await?;
    Ok((holder, cluster.acquired(Lease::K)))
}

/// A mirror Pod of the old manager on the worker's Node, created and set to Running with the credentials of its kubelet.
async fn forge(cluster: &Cluster, flags: &[String], address: &str) -> Result<()> {
    let environment = &cluster.environment;
    let node = &environment.account.instances[WORKER].private_dns_name;
    let pods = principals::mirror_pods(environment.kubelet_of(node).await?);
    let argv = [vec!["kube-controller-manager".to_owned()], flags.to_vec()].concat();
    environment
        .create_mirror_pod(&pods, &name(cluster), node, address, &argv)
        .await
}

async fn remove(cluster: &Cluster) -> Result<()> {
    let node = &cluster.environment.account.instances[WORKER].private_dns_name;
    let pods: Api<_> = principals::mirror_pods(cluster.environment.kubelet_of(node).await?);
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&name(cluster), &now).await?;
    Ok(())
}

fn name(cluster: &Cluster) -> String {
    let node = &cluster.environment.account.instances[WORKER].private_dns_name;
    format!("kube-controller-manager-{node}")
}
