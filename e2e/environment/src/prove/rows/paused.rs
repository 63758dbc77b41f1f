//! Scenario 3: our leader stands still for a minute, with an AWS write in flight.

use std::time::Duration;

use anyhow::{Result, ensure};
use outrigger_aws_sim::{Fault, When};
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::prove::cluster::TAKEN;

const STOPPED: Duration = Duration::from_secs(60);
/// After the process is continued, until the write in flight reaches AWS.
const LATE: Duration = Duration::from_secs(5);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.two_managers().await?;

    let progress = cluster.progress.clone();
    progress.step("Our leader is stopped while it creates a load balancer");
    let environment = &cluster.environment;
    let leader = cluster.leader()?;
    let before = environment.holder(Lease::M);
    environment.mark(NEW_WORK_BEGINS);
    let create = Fault::on("CreateLoadBalancer").hold(When::BeforeForwarding).times(1);
    let held = environment.proxy.add_fault(create);
    environment.create_load_balancer_service("held", 8080).await?;
    ensure!(held.reached(1, TAKEN).await, "no CreateLoadBalancer was sent");

    environment.mark("leader stopped");
    environment.pause(&leader).await?;
    let stopped = tokio::time::Instant::now();
    environment
        .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
        .await?;
    environment
        .wait_load_balancers(&["web", "api", "held"], 2, &progress)
        .await?;
    tokio::time::sleep_until(stopped + STOPPED).await;

    environment.mark("leader continued");
    environment.resume(&leader)?;
    tokio::time::sleep(LATE).await;
    held.release();
    environment.mark("the write in flight reaches AWS");
    tokio::time::sleep(LATE * 2).await;
    environment
        .wait_load_balancers(&["web", "api", "held"], 2, &progress)
        .await
}
