//! Scenario 15: the incumbent in our manager's place and back, in Migrate and in Complete.

use std::collections::BTreeMap;

use anyhow::Result;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::tools::INCUMBENT_VERSION;

use super::Cluster;
use crate::demo::incumbent::{arguments, image};
use crate::operator::{NEW_MANAGER, has_flag};

const INCUMBENT: &str = "aws-cloud-controller-manager";

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    there_and_back(cluster, "Migrate").await?;
    cluster.complete().await?;
    there_and_back(cluster, "Complete").await?;

    let writes = writes(cluster);
    cluster.notes.push(format!(
        "AWS writes of aws-cloud-controller-manager {INCUMBENT_VERSION}: {writes}"
    ));
    Ok(())
}

/// The incumbent gets a file with the names of its controllers: with its default list it does not use M for them.
async fn there_and_back(cluster: &mut Cluster, phase: &str) -> Result<()> {
    let latch = cluster.environment.latch();

    cluster
        .progress
        .step(&format!("{phase}: our manager is replaced by the incumbent"));
    cluster.environment.mark(&format!("incumbent in {phase}"));
    let before = cluster.environment.holder(Lease::M);
    let flags = arguments(&cluster.environment, true)?;
    cluster.environment.replace_manager(&image(), flags).await?;
    let is_incumbent = has_flag("--enable-leader-migration");
    cluster
        .wait_rolled(NEW_MANAGER, "the incumbent runs", is_incumbent)
        .await?;
    let incumbent = cluster.wait_holder(Lease::M, before.as_deref()).await?;
    cluster.settle().await?;
    let now = cluster.environment.latch();
    let text = format!("{phase}: the latch {latch:?} survives the incumbent, now {now:?}");
    cluster.expect(now == latch && latch.is_some(), &text);

    cluster
        .progress
        .step(&format!("{phase}: the incumbent is replaced by our manager"));
    cluster.environment.mark(&format!("our manager in {phase}"));
    cluster.environment.install_manager(1).await?;
    cluster
        .wait_rolled(NEW_MANAGER, "our manager runs", has_flag("--migration="))
        .await?;
    cluster.wait_holder(Lease::M, Some(&incumbent)).await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await
}

/// The AWS writes of the incumbent, with their counts. They are its own: the load makes it reconcile.
fn writes(cluster: &Cluster) -> String {
    let spans = cluster.environment.runner.spans();
    let is_incumbent = |caller: &str| {
        let mut spans = spans.iter();
        spans.any(|span| span.component == INCUMBENT && span.process == caller)
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in cluster.environment.proxy.calls() {
        if call.is_write() && is_incumbent(&call.caller) {
            *counts.entry(call.action).or_default() += 1;
        }
    }

    let texts: Vec<_> = counts
        .iter()
        .map(|(action, count)| format!("{count} {action}"))
        .collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}
