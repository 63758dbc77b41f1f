//! AWS writes that are in flight when their process stands still, is cut off, gets no answer, or ends.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use outrigger_aws_sim::{Call, Fault, When};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::relay::Link;
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::faults::Relays;
use crate::prove::cluster::TAKEN;

const STOPPED: Duration = Duration::from_secs(60);
/// After the process is continued or the link is open again, until the write in flight reaches AWS.
const LATE: Duration = Duration::from_secs(5);
/// A lease duration and a reaction.
const OWNER: Duration = Duration::from_millis(15_500);
/// From the end of the old process to the effect. A take-over without waiting would acquire M before it.
const AFTER_END: SignedDuration = SignedDuration::from_secs(8);
const SENT: &str = "no CreateLoadBalancer was sent";

/// Holds the next creation of a load balancer before it reaches AWS.
fn held_creation() -> Fault {
    Fault::on("CreateLoadBalancer").hold(When::BeforeForwarding).times(1)
}

/// Scenario 3: our leader stands still for a minute in each phase. Where it owns the load balancers, an AWS write is in
/// flight.
pub(super) async fn paused(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.two_managers().await?;
    paused_in_prepare(cluster).await?;

    cluster.migrate().await?;
    cluster.environment.mark(NEW_WORK_BEGINS);
    paused_at(cluster, &["web", "api", "held"]).await?;
    cluster.complete().await?;
    paused_at(cluster, &["web", "api", "held", "late"]).await
}

/// The leader holds only the main lease. The old manager keeps M.
async fn paused_in_prepare(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("Prepare: our leader is stopped");
    let environment = &cluster.environment;
    let (before, owner) = (environment.holder(Lease::C), environment.holder(Lease::M));
    let leader = cluster.process(before.as_deref().context("nobody holds C")?)?.pod;

    environment.mark("leader stopped");
    environment.pause(&leader).await?;
    let begun = tokio::time::Instant::now();
    cluster.wait_holder(Lease::C, before.as_deref()).await?;
    tokio::time::sleep_until(begun + STOPPED).await;
    environment.mark("leader continued");
    environment.resume(&leader)?;
    tokio::time::sleep(QUIET).await;

    let now = environment.holder(Lease::M);
    cluster.expect(now == owner, &format!("Prepare: the old manager keeps M, now {now:?}"));
    cluster.standby_waits().await
}

/// The last of these Services is created, and its load balancer is in flight when the leader is stopped.
async fn paused_at(cluster: &mut Cluster, services: &[&str]) -> Result<()> {
    cluster.standby_waits().await?;
    let progress = &cluster.progress;
    progress.step("Our leader is stopped while it creates a load balancer");
    let environment = &cluster.environment;
    let leader = cluster.leader()?;
    let before = environment.holder(Lease::M);
    let held = environment.proxy.add_fault(held_creation());
    let new = services.last().context("no Service")?;
    environment.create_load_balancer_service(new, 8080).await?;
    ensure!(held.reached(1, TAKEN).await, SENT);

    environment.mark("leader stopped");
    environment.pause(&leader).await?;
    let begun = tokio::time::Instant::now();
    cluster.wait_holder(Lease::M, before.as_deref()).await?;
    environment.wait_load_balancers(services, 2, progress).await?;
    tokio::time::sleep_until(begun + STOPPED).await;

    environment.mark("leader continued");
    environment.resume(&leader)?;
    tokio::time::sleep(LATE).await;
    held.release();
    environment.mark("the write in flight reaches AWS");
    tokio::time::sleep(LATE * 2).await;
    environment.wait_load_balancers(services, 2, progress).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Api,
    Aws,
    Both,
}

impl Cut {
    /// The Service whose load balancer is created in the cut.
    fn service(self) -> &'static str {
        match self {
            Self::Api => "cut-api",
            Self::Aws => "cut-aws",
            Self::Both => "cut-both",
        }
    }

    fn set(self, relays: &Relays, link: Link) {
        if self != Self::Aws {
            relays.set_api(link);
        }
        if self != Self::Api {
            relays.aws.set(link);
        }
    }
}

/// Scenario 7: our leader is cut off for a minute, with an AWS write in flight. Another manager of ours is not.
pub(super) async fn cut_off(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let relays = cluster.run_behind_relays().await?;
    cluster.environment.mark(NEW_WORK_BEGINS);

    for cut in [Cut::Api, Cut::Aws, Cut::Both] {
        cluster.environment.start_standby().await?;
        cluster.standby_waits().await?;
        cut_off_by(cluster, &relays, cut).await?;
        leads_again(cluster).await?;
    }
    cluster.environment.snapshot().await
}

async fn cut_off_by(cluster: &mut Cluster, relays: &Relays, cut: Cut) -> Result<()> {
    cluster.progress.step(&format!(
        "Our leader is cut off while it creates a load balancer: {cut:?}"
    ));
    let environment = &cluster.environment;
    let before = environment.holder(Lease::M);
    let held = environment.proxy.add_fault(held_creation());
    environment.create_load_balancer_service(cut.service(), 8080).await?;
    ensure!(held.reached(1, TAKEN).await, SENT);

    environment.mark(&format!("cut: {cut:?}"));
    let (from, begun) = (Timestamp::now(), tokio::time::Instant::now());
    cut.set(relays, Link::Cut);
    if cut == Cut::Aws {
        tokio::time::sleep_until(begun + STOPPED).await;
        let now = cluster.environment.holder(Lease::M);
        cluster.expect(now == before, &format!("{cut:?}: the leader keeps M, now {now:?}"));
    } else {
        cluster.wait_holder(Lease::M, before.as_deref()).await?;
        let what = format!("{cut:?}: the next owner after the cut");
        cluster.measured(&what, from, cluster.acquired(Lease::M), OWNER);
        tokio::time::sleep_until(begun + STOPPED).await;
    }

    let environment = &cluster.environment;
    environment.mark(&format!("open again: {cut:?}"));
    cut.set(relays, Link::Open);
    tokio::time::sleep(LATE).await;
    held.release();
    environment.mark("the write in flight reaches AWS");
    tokio::time::sleep(LATE * 2).await;
    let services = ["web", "api", cut.service()];
    environment.wait_load_balancers(&services, 2, &cluster.progress).await
}

/// The standby ends, and the manager behind relays leads.
async fn leads_again(cluster: &Cluster) -> Result<()> {
    cluster.standby_waits().await?;
    cluster.environment.end_standby(&cluster.progress).await?;
    cluster.wait_holder(Lease::M, None).await?;
    cluster.settle().await
}

/// Scenario 17: a step back while the answer of an AWS write is missing, so that M is left to expire.
pub(super) async fn unanswered(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;

    let environment = &cluster.environment;
    environment.mark(NEW_WORK_BEGINS);
    let dropped = Fault::on("CreateLoadBalancer")
        .drop_connection(When::AfterForwarding)
        .times(1);
    let dropped = environment.proxy.add_fault(dropped);
    environment.create_load_balancer_service("late", 8080).await?;
    ensure!(dropped.reached(1, TAKEN).await, SENT);

    cluster.roll_back().await?;
    environment
        .wait_load_balancers(&["web", "api", "late"], 2, &cluster.progress)
        .await
}

/// Scenario 23: AWS carries out a write of the old manager after the end of its process, and before its lease expires.
pub(super) async fn late_write(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;

    let progress = cluster.progress.clone();
    progress.step("Migrate: the old manager ends while AWS has not yet carried out its last write");
    let environment = &cluster.environment;
    let before = environment.holder(Lease::M).context("nobody holds M")?;
    let old = cluster.process(&before)?.process;
    environment.mark(NEW_WORK_BEGINS);
    let held = environment.proxy.add_fault(held_creation().by(&old));
    environment.create_load_balancer_service("late", 8080).await?;
    ensure!(held.reached(1, TAKEN).await, SENT);

    environment.set_phase("Migrate").await?;
    environment.apply_phase("Migrate").await?;
    let ended = end_of(cluster, &old).await?;
    let rest = (ended + AFTER_END).duration_since(Timestamp::now());
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
    cluster.wait_condition("ControlPlaneMigrated").await?;
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
        let span = spans.into_iter().find(|span| span.process == process);
        Ok(span.and_then(|span| span.ended).ok_or_else(|| "it runs".to_owned()))
    };
    let what = "the process of the old manager ended";
    cluster.progress.wait(what, ROLL, ended).await
}

/// Says when the effect was, and when the next process acquired M.
fn carried_out(cluster: &mut Cluster, process: &str, ended: Timestamp) {
    let calls = cluster.environment.proxy.calls();
    let of_old = |call: &&Call| call.caller == process && call.action == "CreateLoadBalancer";
    let effect = calls.iter().filter(of_old).filter_map(|call| {
        let took = SignedDuration::try_from(call.outcome.as_ref()?.duration).ok()?;
        call.at.checked_add(took).ok()
    });
    let latest = cluster.environment.leases.latest(Lease::M);
    let acquired = latest.and_then(|change| change.acquired);
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
