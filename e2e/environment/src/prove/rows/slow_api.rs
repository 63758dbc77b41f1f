//! Scenario 9: slow and absent API servers.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_cluster_harness::relay::Link;

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::faults::Relays;

const DELAY: Duration = Duration::from_secs(3);
const SLOW: Duration = Duration::from_secs(120);
const KILLED: Duration = Duration::from_secs(60);
const STOPPED: Duration = Duration::from_secs(30);
/// A lease duration and a reaction.
const EXPIRED: Duration = Duration::from_millis(15_500);
/// A process that started in the outage observes C and then M for a lease duration each. Its watches recover late.
const OWNER: Duration = Duration::from_secs(40);

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let relays = cluster.run_behind_relays().await?;
    cluster.environment.start_standby().await?;
    cluster.standby_waits().await?;

    slow(cluster, &relays).await?;
    management_is_away(cluster, &relays).await?;
    killed(cluster).await?;
    stopped(cluster).await
}

/// The leader alone is behind the slow link.
async fn slow(cluster: &mut Cluster, relays: &Relays) -> Result<()> {
    cluster.progress.step("Both API servers are slow for our leader");
    let before = cluster.environment.holder(Lease::M);
    let from = Timestamp::now();
    cluster.environment.mark("slow");
    relays.set_api(Link::Slow(DELAY));
    tokio::time::sleep(SLOW).await;
    relays.set_api(Link::Open);
    cluster.environment.mark("not slow");

    let changes = cluster.environment.leases.changes();
    let of_m = |change: &&LeaseChange| change.lease == Lease::M && change.at > from;
    let others = changes.iter().filter(of_m).filter(|change| change.holder != before);
    let lost = others.count();
    cluster.expect(
        lost == 0,
        &format!("the leader keeps M with a delay of {DELAY:?}: {lost} changes"),
    );
    cluster.settle().await
}

/// Our leader ends while it cannot read the object.
async fn management_is_away(cluster: &mut Cluster, relays: &Relays) -> Result<()> {
    cluster
        .progress
        .step("The management API is away for one manager, and the leader ends");
    let leader = cluster.leader()?;
    let before = cluster.environment.holder(Lease::M);
    relays.management.set(Link::Cut);
    tokio::time::sleep(QUIET).await;
    let ended = Timestamp::now();
    cluster.environment.mark("SIGKILL of our leader");
    cluster.environment.runner.kill(&leader).await?;
    cluster.wait_holder(Lease::M, before.as_deref()).await?;
    let what = "management API away: M is held again";
    cluster.measured(what, ended, cluster.acquired(Lease::M), EXPIRED);
    relays.management.set(Link::Open);
    tokio::time::sleep(QUIET * 2).await;
    cluster.environment.snapshot().await
}

async fn killed(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("The cluster's API server is killed");
    cluster.environment.mark("API server killed");
    cluster.environment.tenant.process().kill_now().await?;
    tokio::time::sleep(KILLED).await;
    cluster.environment.tenant.start_again().await?;
    owner_again(cluster, "API server killed").await
}

async fn stopped(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("etcd is stopped by a signal");
    cluster.environment.mark("etcd stopped");
    cluster.environment.pause_etcd(STOPPED).await?;
    owner_again(cluster, "etcd stopped").await
}

/// Waits until M is renewed.
async fn owner_again(cluster: &mut Cluster, what: &str) -> Result<()> {
    let back = Timestamp::now();
    cluster.environment.mark("the API server answers");
    let renewed = async || {
        let latest = cluster.environment.leases.latest(Lease::M);
        let renewed = latest.and_then(|change| change.holder.and(change.renewed));
        Ok(renewed
            .filter(|at| *at > back)
            .ok_or_else(|| "nobody renews M".to_owned()))
    };
    let at = cluster.progress.wait("M is renewed", ROLL, renewed).await?;
    cluster.measured(&format!("{what}: M is held again"), back, at, OWNER);
    tokio::time::sleep(QUIET * 2).await;
    cluster.environment.snapshot().await
}
