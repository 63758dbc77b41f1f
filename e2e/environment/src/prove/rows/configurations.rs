//! Scenario 8: old managers whose leader migration guards nothing, or not every controller.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use serde_json::json;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::OLD_MANAGER;

/// From the change of a manifest until the status names the problem.
const REFUSED: Duration = Duration::from_secs(30);
/// K and M of a process that ended expire.
const EXPIRED: Duration = Duration::from_secs(30);
const LEADER_MIGRATION: &str = "--enable-leader-migration";
const DEFAULT_LEASE: &str = "cloud-provider-extraction-migration";
/// The names of Kubernetes 1.26.
const NAMES: [&str; 3] = ["service", "route", "cloud-node-lifecycle"];
/// The names since 1.28. Kubernetes 1.26 has no controller with such a name, so none is guarded.
const LATER_NAMES: [&str; 3] = [
    "service-lb-controller",
    "node-route-controller",
    "cloud-node-lifecycle-controller",
];

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    // In mode Enforce the webhook gives each manager the form of the phase.
    cluster.environment.change_migration(&json!({"mode": "Audit"})).await?;
    cluster.environment.set_phase("Prepare").await?;

    external_with_leader_migration(cluster).await?;
    for (what, names) in [("a partial list", &NAMES[..1]), ("a list of 1.28", &LATER_NAMES[..])] {
        let file = file(cluster, what, DEFAULT_LEASE, names)?;
        own_file(cluster, what, &file).await?;
    }
    two_files(cluster).await?;

    cluster
        .environment
        .change_migration(&json!({"mode": "Enforce"}))
        .await?;
    cluster.environment.set_phase("Prepare").await?;
    cluster.prepare().await?;
    cluster.migrate().await
}

/// It holds M and runs nothing under it.
async fn external_with_leader_migration(cluster: &mut Cluster) -> Result<()> {
    let what = "an external manager with leader migration";
    cluster.progress.step(what);
    let flags = cluster.environment.external_flags()?;
    let flags = flags.chain([LEADER_MIGRATION.to_owned()]);

    let changed = Timestamp::now();
    cluster.environment.deploy_flags(flags).await?;
    let words = ["every one is external, so no process owns them"];
    refused(cluster, what, changed, "Prepared", &words).await?;
    cluster.wait_holder(Lease::M, None).await?;

    for phase in ["Prepare", "Migrate"] {
        let changed = Timestamp::now();
        cluster.environment.set_phase(phase).await?;
        let words = [OLD_MANAGER, "holds it and runs no cloud controller"];
        let what = format!("{phase}, {what}");
        refused(cluster, &what, changed, "ControlPlaneMigrated", &words).await?;
        tokio::time::sleep(QUIET).await;
    }
    Ok(())
}

/// In phase Migrate each rollout frees K and M.
async fn own_file(cluster: &mut Cluster, what: &str, file: &str) -> Result<()> {
    cluster.progress.step(&format!("Leader migration with {what}"));
    let original = cluster.environment.old_manager_flags()?;
    let flags = [LEADER_MIGRATION.to_owned(), format!("--leader-migration-config={file}")];

    let before = cluster.environment.holder(Lease::M);
    let changed = Timestamp::now();
    let flags = original.into_iter().chain(flags);
    cluster.environment.deploy_flags(flags).await?;
    refused(cluster, what, changed, "Prepared", &[OLD_MANAGER, file]).await?;
    let (environment, progress) = (&cluster.environment, &cluster.progress);
    environment
        .wait_holder(Lease::M, before.as_deref(), ROLL, progress)
        .await?;
    tokio::time::sleep(QUIET).await;
    not_acquired(cluster, what).await
}

/// The leader has the built-in list, and the other manager a file with another lease.
async fn two_files(cluster: &mut Cluster) -> Result<()> {
    let what = "two managers with different leases";
    cluster.progress.step(what);
    let file = file(cluster, what, "another-lease", &NAMES)?;
    let flags = [LEADER_MIGRATION.to_owned(), format!("--leader-migration-config={file}")];

    let changed = Timestamp::now();
    cluster.environment.start_old_manager_beside(&flags).await?;
    cluster.environment.deploy_guarded().await?;
    let words = ["kcm-beside", &file, "have different leader migration configurations"];
    refused(cluster, what, changed, "Prepared", &words).await?;
    // Either of them leads next.
    tokio::time::sleep(EXPIRED).await;
    not_acquired(cluster, what).await?;

    cluster.environment.end_old_manager_beside(&cluster.progress).await?;
    Ok(())
}

/// A file of leader migration, where the old manager can read it.
fn file(cluster: &Cluster, what: &str, lease: &str, names: &[&str]) -> Result<String> {
    let name = format!("{}.yaml", what.replace([' ', '.'], "-"));
    let path = cluster.environment.run.join(name);
    std::fs::write(&path, configuration(lease, names))?;
    Ok(path.display().to_string())
}

fn configuration(lease: &str, names: &[&str]) -> String {
    let entries = names
        .iter()
        .map(|name| format!("- {{name: {name}, component: \"*\"}}\n"));
    format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
         leaderName: {lease}\ncontrollerLeaders:\n{}",
        entries.collect::<String>()
    )
}

/// Waits until the condition is not True and has these words.
async fn refused(cluster: &mut Cluster, what: &str, changed: Timestamp, kind: &str, words: &[&str]) -> Result<()> {
    let said = cluster
        .wait_message(kind, words, "the status names the problem")
        .await?;
    cluster.measured(&format!("{what}: named in {kind}"), changed, Timestamp::now(), REFUSED);
    let folder = cluster.environment.run.display().to_string();
    let named = said
        .split("; ")
        .find(|part| words.last().is_some_and(|word| part.contains(word)));
    let note = named.unwrap_or(&said).replace(&folder, "");
    cluster.notes.push(format!("{what}: {note}"));
    Ok(())
}

async fn not_acquired(cluster: &mut Cluster, what: &str) -> Result<()> {
    let changes = cluster.environment.leases.changes().into_iter();
    let holders: BTreeSet<String> = changes
        .filter(|change| change.lease == Lease::M)
        .filter_map(|change| change.holder)
        .collect();
    let ours = holders.iter().any(|holder| cluster.is_ours(holder));
    cluster.expect(!ours, &format!("{what}: M is not acquired by ours"));
    let prepared = cluster.condition_is_true("Prepared").await?;
    cluster.expect(!prepared, &format!("{what}: the condition Prepared is not True"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use outrigger_shared::controller::{Controller, Party};
    use outrigger_shared::leader_migration::{LeaderMigrationConfiguration, Placement};

    use super::*;

    #[test]
    fn the_files_guard_what_their_names_say() {
        let guarded = |names: &[&str]| {
            let text = configuration("a-lease", names);
            let loaded = LeaderMigrationConfiguration::from_text("file", &text)
                .expect("it is valid")
                .config;
            assert_eq!(loaded.leader_name, "a-lease");
            let is_guarded = |controller: &Controller| {
                loaded.placement(*controller, Party::KubeControllerManager) == Placement::Migrated
            };
            Controller::SHARED.into_iter().filter(is_guarded).count()
        };
        assert_eq!(guarded(&NAMES), 3);
        assert_eq!(guarded(&NAMES[..1]), 1);
    }
}
