//! Scenario 7: our leader is cut off for a minute, with an AWS write in flight. Another manager of ours is not.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use outrigger_aws_sim::{Fault, When};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::relay::Link;
use outrigger_timeline::NEW_WORK_BEGINS;

use super::Cluster;
use crate::demo::migrate::QUIET;
use crate::prove::cluster::TAKEN;
use crate::relays::Relays;

const CUT: Duration = Duration::from_secs(60);
/// After the link is open again, until the write in flight reaches AWS.
const LATE: Duration = Duration::from_secs(5);
/// A lease duration and a reaction.
const OWNER: Duration = Duration::from_millis(15_500);

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

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;

    let relays = cluster.run_behind_relays().await?;
    cluster.environment.mark(NEW_WORK_BEGINS);

    for cut in [Cut::Api, Cut::Aws, Cut::Both] {
        cluster.environment.start_standby().await?;
        cluster.standby_waits().await?;
        cut_off(cluster, &relays, cut).await?;
        leads_again(cluster).await?;
    }
    cluster.environment.snapshot().await
}

async fn cut_off(cluster: &mut Cluster, relays: &Relays, cut: Cut) -> Result<()> {
    let progress = cluster.progress.clone();
    progress.step(&format!(
        "Our leader is cut off while it creates a load balancer: {cut:?}"
    ));
    let environment = &cluster.environment;
    let before = environment.holder(Lease::M);
    let create = Fault::on("CreateLoadBalancer").hold(When::BeforeForwarding).times(1);
    let held = environment.proxy.add_fault(create);
    environment.create_load_balancer_service(cut.service(), 8080).await?;
    ensure!(held.reached(1, TAKEN).await, "no CreateLoadBalancer was sent");

    environment.mark(&format!("cut: {cut:?}"));
    let (from, begun) = (Timestamp::now(), tokio::time::Instant::now());
    cut.set(relays, Link::Cut);
    if cut == Cut::Aws {
        tokio::time::sleep_until(begun + CUT).await;
        let now = cluster.environment.holder(Lease::M);
        cluster.expect(now == before, &format!("{cut:?}: the leader keeps M, now {now:?}"));
    } else {
        environment
            .wait_holder(Lease::M, before.as_deref(), TAKEN, &progress)
            .await?;
        let latest = environment.leases.latest(Lease::M);
        let acquired = latest.and_then(|change| change.acquired).unwrap_or_else(Timestamp::now);
        cluster.measured(&format!("{cut:?}: the next owner after the cut"), from, acquired, OWNER);
        tokio::time::sleep_until(begun + CUT).await;
    }

    cluster.environment.mark(&format!("open again: {cut:?}"));
    cut.set(relays, Link::Open);
    tokio::time::sleep(LATE).await;
    held.release();
    cluster.environment.mark("the write in flight reaches AWS");
    tokio::time::sleep(LATE * 2).await;
    let services = ["web", "api", cut.service()];
    cluster.environment.wait_load_balancers(&services, 2, &progress).await
}

/// The standby ends, and the manager behind relays leads.
async fn leads_again(cluster: &Cluster) -> Result<()> {
    let (environment, progress) = (&cluster.environment, &cluster.progress);
    cluster.standby_waits().await?;
    environment.end_standby(progress).await?;
    environment.wait_holder(Lease::M, None, TAKEN, progress).await?;
    tokio::time::sleep(QUIET).await;
    environment.snapshot().await
}
