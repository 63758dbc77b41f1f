//! Scenario 23: AWS carries out a write of the old manager after the end of its process, and before its lease expires.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use outrigger_aws_sim::{Fault, When};
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::prove::cluster::TAKEN;

/// From the end of the process to the effect. A take-over without waiting would acquire M before it.
const LATE: SignedDuration = SignedDuration::from_secs(8);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;

    let progress = cluster.progress.clone();
    progress.step("Migrate: the old manager ends while AWS has not yet carried out its last write");
    let environment = &cluster.environment;
    let before = environment.holder(Lease::M).context("nobody holds M")?;
    let old = cluster.process(&before)?.process;
    environment.mark(NEW_WORK_BEGINS);
    let create = Fault::on("CreateLoadBalancer")
        .hold(When::BeforeForwarding)
        .by(&old)
        .times(1);
    let held = environment.proxy.add_fault(create);
    environment.create_load_balancer_service("late", 8080).await?;
    ensure!(held.reached(1, TAKEN).await, "no CreateLoadBalancer was sent");

    environment.set_phase("Migrate").await?;
    environment.apply_phase("Migrate").await?;
    let ended = end_of(cluster, &old).await?;
    let rest = (ended + LATE).duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(rest).unwrap_or_default()).await;
    let holder = environment.holder(Lease::M);
    held.release();
    environment.mark("the write of the process that has ended reaches AWS");
    cluster.expect(
        holder.as_ref() == Some(&before),
        &format!("M is still the ended process's, 8 s after its end: {holder:?}"),
    );

    let environment = &cluster.environment;
    environment.wait_handed_over(Some(&before), ROLL, &progress).await?;
    environment
        .wait_condition("ControlPlaneMigrated", TAKEN, &progress)
        .await?;
    environment
        .wait_load_balancers(&["web", "api", "late"], 2, &progress)
        .await?;
    tokio::time::sleep(QUIET).await;

    let count = environment.load_balancers().await?.len();
    cluster.expect(count == 3, &format!("there are three load balancers: {count}"));
    carried_out(cluster, &old, ended);
    Ok(())
}

async fn end_of(cluster: &Cluster, process: &str) -> Result<Timestamp> {
    let ended = async || {
        let spans = cluster.environment.runner.spans();
        let ended = spans
            .into_iter()
            .find(|span| span.process == process)
            .and_then(|span| span.ended);
        Ok(ended.ok_or_else(|| "it runs".to_owned()))
    };
    cluster
        .progress
        .wait("the process of the old manager ended", ROLL, ended)
        .await
}

/// Says when the effect was, and when the next process acquired M.
fn carried_out(cluster: &mut Cluster, process: &str, ended: Timestamp) {
    let calls = cluster.environment.proxy.calls();
    let of_old = |call: &&outrigger_aws_sim::Call| call.caller == process && call.action == "CreateLoadBalancer";
    let effect = calls.iter().filter(of_old).filter_map(|call| {
        let took = SignedDuration::try_from(call.outcome.as_ref()?.duration).ok()?;
        call.at.checked_add(took).ok()
    });
    let acquired = cluster
        .environment
        .leases
        .latest(Lease::M)
        .and_then(|change| change.acquired);
    let (Some(effect), Some(acquired)) = (effect.max(), acquired) else {
        cluster.expect(false, "the write was carried out, and M acquired");
        return;
    };

    let seconds = |at: Timestamp| at.duration_since(ended).as_secs_f64();
    let note = format!(
        "after the end of the old process AWS carried out its CreateLoadBalancer at {:.1} s; ours acquired the lease at \
         {:.1} s",
        seconds(effect),
        seconds(acquired)
    );
    cluster.progress.say(&note);
    cluster.notes.push(note);
}
