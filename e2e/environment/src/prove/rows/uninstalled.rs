//! Scenario 13: the manager is uninstalled before the operator goes back, and installed again in `InTree`.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::leases::Lease;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::prove::cluster::TAKEN;

/// Longer than a lease and an offer.
const INSTALLED: Duration = Duration::from_secs(30);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    let progress = cluster.progress.clone();

    progress.step("The manager is uninstalled, and the operator goes back to InTree");
    cluster.environment.scale_manager(0).await?;
    cluster.roll_back().await?;
    cluster.environment.set_phase("InTree").await?;
    cluster.environment.apply_phase("InTree").await?;
    let original = |argv: &[String]| !argv.iter().any(|flag| flag.starts_with("--enable-leader-migration"));
    let what = "the old manager runs in its original form";
    cluster
        .environment
        .wait_rolled(OLD_MANAGER, what, ROLL, &progress, original)
        .await?;

    progress.step("The manager is installed again in InTree");
    cluster.environment.scale_manager(1).await?;
    cluster
        .environment
        .wait_rolled(NEW_MANAGER, "our manager runs", ROLL, &progress, |_| true)
        .await?;
    tokio::time::sleep(INSTALLED).await;
    let holder = cluster.environment.holder(Lease::M);
    let is_ours = |holder: &String| cluster.process(holder).is_ok_and(|span| span.component == NEW_MANAGER);
    let taken = holder.as_ref().is_some_and(is_ours);
    cluster.expect(!taken, &format!("M is not acquired in InTree: {holder:?}"));

    progress.step("A second migration");
    cluster
        .environment
        .wait_holder(Lease::C, None, TAKEN, &progress)
        .await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}
