//! Scenario 17: a step back while the answer of an AWS write is missing, so that M is left to expire.

use anyhow::{Result, ensure};
use outrigger_aws_sim::{Fault, When};
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::prove::cluster::TAKEN;

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;

    let environment = &cluster.environment;
    environment.mark(NEW_WORK_BEGINS);
    let dropped = Fault::on("CreateLoadBalancer")
        .drop_connection(When::AfterForwarding)
        .times(1);
    let dropped = environment.proxy.add_fault(dropped);
    environment.create_load_balancer_service("late", 8080).await?;
    ensure!(dropped.reached(1, TAKEN).await, "no CreateLoadBalancer was sent");

    cluster.roll_back().await?;
    environment
        .wait_load_balancers(&["web", "api", "late"], 2, &cluster.progress)
        .await
}
