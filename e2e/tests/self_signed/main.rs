//! Certificates without cert-manager, with the project's manifests on real API servers: replicas that start at the same
//! time share one CA, and no call fails while certificate and CA change and a replica joins.

#![allow(clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod balancer;
mod cluster;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::cluster::Version;
use outrigger_cluster_harness::relay::Link;
use outrigger_cluster_harness::wait;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Replica, SOON};

/// The old CA leaves the bundles after its 70 s.
const ROTATION: Duration = Duration::from_secs(240);
const LATE: Duration = Duration::from_secs(3);
/// Some backoffs long.
const OUTAGE: Duration = Duration::from_secs(12);
const CALLERS: usize = 4;
/// Between two calls of a caller: often enough for each connection, of which each lives for a second.
const PAUSE: Duration = Duration::from_millis(120);

#[tokio::test(flavor = "multi_thread")]
async fn on_kubernetes_1_26_replicas_share_a_ca_and_replace_it_under_load() {
    if let Err(error) = on(Version::V1_26, 106).await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_kubernetes_1_36_replicas_share_a_ca_and_replace_it_under_load() {
    if let Err(error) = on(Version::V1_36, 107).await {
        panic!("{error:#}");
    }
}

async fn on(version: Version, network: u8) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cluster = Cluster::start(folder.path(), version, network).await?;

    nothing_is_blocked_outside_of_labelled_namespaces(&cluster).await?;
    let (first, second) = (cluster.replica(0)?, cluster.replica(1)?);
    tokio::try_join!(first.ready(), second.ready())?;
    both_serve_certificates_of_one_ca(&cluster, [&first, &second]).await?;
    cluster.try_node().await?.granted().context("a Node of the tenant")?;
    println!("{version:?}: one CA, two replicas, two clusters");

    cluster.balancer.set(&[first.address, second.address]);
    let third = certificates_change_under_load(&cluster).await?;
    cluster.try_node().await?.granted().context("a Node of the tenant")?;
    println!("{version:?}: replaced the CA under load");

    a_registration_without_bundles_gets_them_again(&cluster).await?;
    check_logs(&[&first, &second, &third])?;

    a_replica_waits_for_its_api_server(&cluster).await?;
    cluster.apply_without_last_entry().await
}

/// The registration is there, and no replica yet.
async fn nothing_is_blocked_outside_of_labelled_namespaces(cluster: &Cluster) -> Result<()> {
    cluster.try_pod("open").await?.granted()?;
    let refused = cluster.try_pod("guarded").await?;
    ensure!(!refused.is_granted(), "the Fail entries have no effect");
    Ok(())
}

async fn both_serve_certificates_of_one_ca(cluster: &Cluster, replicas: [&Replica; 2]) -> Result<()> {
    wait::until("every entry has a bundle", SOON, async || {
        Ok::<_, anyhow::Error>(cluster.bundles().await?.iter().all(|bundle| !bundle.is_empty()))
    })
    .await?;

    let ca = cluster.secret("ca.crt").await?;
    for bundle in cluster.bundles().await? {
        ensure!(bundle == ca, "a bundle is not the CA: {bundle}");
    }
    for replica in replicas {
        cluster.balancer.set(&[replica.address]);
        let granted = async || Ok::<_, anyhow::Error>(cluster.try_pod("guarded").await?.is_granted());
        wait::until(&format!("{} answers", replica.name), SOON, granted).await?;
    }
    Ok(())
}

/// Returns a replica that joined meanwhile.
async fn certificates_change_under_load(cluster: &Cluster) -> Result<Replica> {
    let (stop, _) = watch::channel(false);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(cluster.caller(), stop.subscribe()));
    }

    let third = cluster.replica(2)?;
    third.ready().await?;
    cluster.balancer.add(third.address);
    let rotated = rotation(cluster).await;
    stop.send_replace(true);

    let mut calls = 0;
    for result in callers.join_all().await {
        calls += result?;
    }
    rotated?;
    let reviews = third.metric("outrigger_webhook_reviews_total{kind=\"Pod\"").await?;
    println!("{calls} calls, the third replica decided {reviews} reviews");
    ensure!(calls > 500, "only {calls} calls");
    ensure!(reviews > 0.0, "the third replica got no call");
    Ok(third)
}

/// Waits until a new CA has signed the certificate and the old one has left every bundle. Meanwhile one replica learns of
/// the change some seconds late, and serves the certificate of the old CA.
async fn rotation(cluster: &Cluster) -> Result<()> {
    let first = cluster.secret("ca.crt").await?;
    let start = Instant::now();
    let mut certificates = BTreeSet::from([cluster.secret("tls.crt").await?]);
    let mut replaced = None;
    loop {
        ensure!(
            start.elapsed() < ROTATION,
            "{} certificates, and the old CA is there",
            certificates.len()
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
        certificates.insert(cluster.secret("tls.crt").await?);
        let bundles = cluster.bundles().await?;
        if replaced.is_none() && bundles.iter().all(|bundle| bundle.matches("BEGIN").count() == 2) {
            cluster.relay.set(Link::Cut);
        }
        if cluster.secret("ca.crt").await? != first {
            let replaced = replaced.get_or_insert_with(Instant::now);
            if replaced.elapsed() > LATE {
                cluster.relay.set(Link::Open);
            }
        }
        let is_over = replaced.is_some_and(|replaced| replaced.elapsed() > 2 * LATE);
        if is_over && bundles.iter().all(|bundle| !bundle.contains(first.trim())) {
            break;
        }
    }

    println!("{} certificates after {:.0?}", certificates.len(), start.elapsed());
    ensure!(certificates.len() >= 4, "{} certificates", certificates.len());
    Ok(())
}

/// Creates Pods that need the webhook's answer, until `stop`; returns their number.
async fn call(cluster: Arc<cluster::Caller>, stop: watch::Receiver<bool>) -> Result<u64> {
    let start = Instant::now();
    let mut calls = 0;
    while !*stop.borrow() {
        let answer = cluster.try_pod("guarded").await?;
        answer
            .granted()
            .with_context(|| format!("call {calls} after {:.1?}", start.elapsed()))?;
        calls += 1;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(calls)
}

/// It starts while the API server cannot be reached.
async fn a_replica_waits_for_its_api_server(cluster: &Cluster) -> Result<()> {
    cluster.relay.set(Link::Cut);
    let late = cluster.replica(3)?;
    wait::until("the replica says why it is not ready", SOON, async || {
        let (status, text) = late.probe("/readyz").await?;
        let is_named = text.contains("no serving certificate yet: cannot read the Secret (outrigger-system/");
        ensure!(status == 503 && is_named, "{status} {text}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    tokio::time::sleep(OUTAGE).await;
    let (status, _) = late.probe("/livez").await?;
    ensure!(status == 200, "/livez answers {status}");

    cluster.relay.set(Link::Open);
    late.ready().await?;
    cluster.balancer.set(&[late.address]);
    wait::until("the replica answers", SOON, async || {
        Ok::<_, anyhow::Error>(cluster.try_pod("guarded").await?.is_granted())
    })
    .await?;
    Ok(())
}

/// As after `kubectl replace`.
async fn a_registration_without_bundles_gets_them_again(cluster: &Cluster) -> Result<()> {
    cluster.remove_bundles().await?;
    wait::until("every entry has a bundle again", SOON, async || {
        Ok::<_, anyhow::Error>(cluster.bundles().await?.iter().all(|bundle| !bundle.is_empty()))
    })
    .await?;
    Ok(())
}

fn check_logs(replicas: &[&Replica]) -> Result<()> {
    let mut created = 0;
    for replica in replicas {
        let log = std::fs::read_to_string(replica.log())?;
        created += log.lines().filter(|line| line.contains("\"step\":\"Create\"")).count();
        ensure!(!log.contains("PRIVATE KEY"), "{} logs a key", replica.name);
        let failed = log
            .lines()
            .find(|line| line.contains("self-signed certificates: action failed"));
        ensure!(failed.is_none(), "{}: {failed:?}", replica.name);
    }
    ensure!(created == 1, "{created} replicas created a CA");
    Ok(())
}
