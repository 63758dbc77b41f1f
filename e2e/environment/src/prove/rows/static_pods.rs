//! Scenario 4: three static Pods that the operator edits Node by Node.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::operator::NEW_MANAGER;

const NODES: usize = 3;
/// The Node that is edited last.
const LAST: usize = NODES - 1;
const LATE: Duration = Duration::from_secs(60);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    let original = cluster.environment.old_manager_flags()?;
    let guarded = [original.clone(), vec!["--enable-leader-migration".to_owned()]].concat();
    let external: Vec<String> = cluster.environment.external_flags()?.collect();

    for index in 0..NODES {
        cluster.environment.join_in_tree(index).await?;
        cluster.environment.label_control_plane(index).await?;
        cluster.environment.roll_static_manager(index, &original).await?;
    }
    cluster.services(NODES).await?;
    install(cluster).await?;

    cluster.progress.step("Prepare: leader migration on two of three Nodes");
    cluster.environment.set_phase("Prepare").await?;
    roll(cluster, 0..LAST, &guarded).await?;
    one_stays_old(cluster).await?;
    roll(cluster, LAST..NODES, &guarded).await?;
    cluster.wait_condition("Prepared").await?;

    cluster
        .progress
        .step("Migrate: external on each Node, the last one 60 s later");
    roll(cluster, 0..LAST, &external).await?;
    tokio::time::sleep(LATE).await;
    cluster.environment.snapshot().await?;
    roll(cluster, LAST..NODES, &external).await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// The cluster's own kube-system has the mirror Pods; the object is in the management cluster, as elsewhere here.
pub(super) async fn install(cluster: &mut Cluster) -> Result<()> {
    let (environment, progress) = (&mut cluster.environment, &cluster.progress);
    progress.step("Install: CloudProviderMigration in phase InTree, our manager");
    environment.create_control_plane_namespace().await?;
    environment.install_management(progress).await?;
    environment.install_tenant(progress).await?;
    environment.install_evidence_rights().await?;
    environment.start_webhook().await?;
    environment.create_migration_of_nodes().await?;
    environment.mark("phase InTree");
    environment.install_manager(1).await?;
    cluster.wait_rolled(NEW_MANAGER, "our manager runs", |_| true).await?;
    cluster.wait_holder(Lease::C, None).await?;
    Ok(())
}

pub(super) async fn roll(cluster: &Cluster, nodes: std::ops::Range<usize>, flags: &[String]) -> Result<()> {
    for index in nodes {
        cluster.environment.roll_static_manager(index, flags).await?;
        cluster.progress.say(&format!(
            "the static Pod of Node {index} has {}",
            flags.last().map_or("", String::as_str)
        ));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    Ok(())
}

/// The operator goes on to Migrate while one Node still has the original manifest.
async fn one_stays_old(cluster: &mut Cluster) -> Result<()> {
    let old = cluster.environment.account.instances[LAST].private_dns_name.clone();
    for phase in ["Prepare", "Migrate"] {
        if phase == "Migrate" {
            cluster.environment.set_phase(phase).await?;
        }
        tokio::time::sleep(LATE / 2).await;
        let said = cluster.condition("Prepared").await?;
        cluster.expect(
            said.contains(&old),
            &format!("{phase}: the message names Node {old}: {said}"),
        );
        let note = format!("{phase}, one of three is old: {said}");
        cluster.progress.say(&note);
        cluster.notes.push(note);
    }

    let taken = cluster.environment.leases.changes().into_iter().find(|change| {
        let holder = change.holder.as_ref().filter(|_| change.lease == Lease::M);
        holder.is_some_and(|holder| cluster.is_ours(holder))
    });
    cluster.expect(
        taken.is_none(),
        "M is not acquired while one manager has no leader migration",
    );
    Ok(())
}
