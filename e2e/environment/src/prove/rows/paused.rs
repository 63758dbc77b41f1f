//! Scenario 3: our leader stands still for a minute in each phase. Where it owns the load balancers, an AWS write is in
//! flight.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrigger_aws_sim::{Fault, When};
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::prove::cluster::TAKEN;

const STOPPED: Duration = Duration::from_secs(60);
/// After the process is continued, until the write in flight reaches AWS.
const LATE: Duration = Duration::from_secs(5);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.two_managers().await?;
    in_prepare(cluster).await?;

    cluster.migrate().await?;
    cluster.environment.mark(NEW_WORK_BEGINS);
    stopped(cluster, &["web", "api", "held"]).await?;
    cluster.complete().await?;
    stopped(cluster, &["web", "api", "held", "late"]).await
}

/// The leader holds only the main lease. The old manager keeps M.
async fn in_prepare(cluster: &mut Cluster) -> Result<()> {
    let progress = cluster.progress.clone();
    progress.step("Prepare: our leader is stopped");
    let environment = &cluster.environment;
    let (before, owner) = (environment.holder(Lease::C), environment.holder(Lease::M));
    let leader = cluster.process(before.as_deref().context("nobody holds C")?)?.pod;

    environment.mark("leader stopped");
    environment.pause(&leader).await?;
    let begun = tokio::time::Instant::now();
    environment
        .wait_holder(Lease::C, before.as_deref(), TAKEN, &progress)
        .await?;
    tokio::time::sleep_until(begun + STOPPED).await;
    environment.mark("leader continued");
    environment.resume(&leader)?;
    tokio::time::sleep(QUIET).await;

    let now = environment.holder(Lease::M);
    cluster.expect(now == owner, &format!("Prepare: the old manager keeps M, now {now:?}"));
    cluster.standby_waits().await
}

/// The last of these Services is created, and its load balancer is in flight when the leader is stopped.
async fn stopped(cluster: &mut Cluster, services: &[&str]) -> Result<()> {
    cluster.standby_waits().await?;
    let progress = cluster.progress.clone();
    progress.step("Our leader is stopped while it creates a load balancer");
    let environment = &cluster.environment;
    let leader = cluster.leader()?;
    let before = environment.holder(Lease::M);
    let create = Fault::on("CreateLoadBalancer").hold(When::BeforeForwarding).times(1);
    let held = environment.proxy.add_fault(create);
    let new = services.last().context("no Service")?;
    environment.create_load_balancer_service(new, 8080).await?;
    ensure!(held.reached(1, TAKEN).await, "no CreateLoadBalancer was sent");

    environment.mark("leader stopped");
    environment.pause(&leader).await?;
    let begun = tokio::time::Instant::now();
    environment
        .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
        .await?;
    environment.wait_load_balancers(services, 2, &progress).await?;
    tokio::time::sleep_until(begun + STOPPED).await;

    environment.mark("leader continued");
    environment.resume(&leader)?;
    tokio::time::sleep(LATE).await;
    held.release();
    environment.mark("the write in flight reaches AWS");
    tokio::time::sleep(LATE * 2).await;
    environment.wait_load_balancers(services, 2, &progress).await
}
