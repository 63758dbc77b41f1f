//! Certificates by the real controller and cainjector of cert-manager, with the chart's `certificates.source:
//! certManager`: no request fails while the certificate is renewed several times and its authority once.
//!
//! `make test-long TESTS=cert_manager` builds cert-manager and runs it.

#![allow(clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod chart;
mod cluster;
mod kubelet;
mod load;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use crate::cluster::{CA_SECRET, Cainjector, Cluster, SECRET};
use crate::load::Load;

/// The first authority expires after 200 s.
const ROTATION: Duration = Duration::from_secs(600);
/// Load with an expired first authority.
const AFTER_EXPIRY: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_cert_manager_renews_certificate_and_authority() {
    if let Err(error) = with(Cainjector::Adds, 112).await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_with_the_cainjector_of_an_old_cert_manager() {
    if let Err(error) = with(Cainjector::Replaces, 113).await {
        panic!("{error:#}");
    }
}

async fn with(cainjector: Cainjector, network: u8) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut cluster = Cluster::start(folder.path(), cainjector, network).await?;
    chart::install(&cluster).await?;
    nothing_answers_before_the_webhook_runs(&cluster).await?;
    cluster.run_the_webhook().await?;

    let before = cluster.unanswered_calls().await?;
    let load = Load::start(&cluster.admin);
    let rotated = rotation(&cluster).await;
    let outcome = load.stop().await;
    println!("{} requests, {} failed", outcome.requests, outcome.failed);
    let examples = outcome.examples.join("\n");
    ensure!(
        outcome.failed == 0,
        "{} of {} requests failed, such as:\n{examples}",
        outcome.failed,
        outcome.requests
    );
    rotated?;

    // Of an entry with `Ignore` only the API server knows.
    let unanswered = cluster.unanswered_calls().await? - before;
    ensure!(unanswered.abs() < 0.5, "{unanswered} calls of the webhook failed");
    ensure!(outcome.requests > 1000, "only {} requests", outcome.requests);
    Ok(())
}

/// The check of the load and of the API server's count: both see that no replica runs.
async fn nothing_answers_before_the_webhook_runs(cluster: &Cluster) -> Result<()> {
    ensure!(
        !load::try_pod(&cluster.admin).await?.is_granted(),
        "the Fail entries have no effect"
    );
    load::try_node(&cluster.admin).await?.granted().context("a Node")?;

    let unanswered = cluster.unanswered_calls().await?;
    ensure!(
        unanswered > 1.5,
        "the API server counts {unanswered} failed calls, not one for each request"
    );
    Ok(())
}

/// Waits until the certificate was renewed twice by the first authority and once by the next, and the first one expired
/// and is in no `caBundle`.
async fn rotation(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    let first = cluster.secret(CA_SECRET, "tls.crt").await?;
    let expiry = cluster.expiry("outrigger-ca").await?;
    let (mut of_first, mut of_next) = (BTreeSet::new(), BTreeSet::new());
    loop {
        ensure!(
            start.elapsed() < ROTATION,
            "{} and {} certificates of the two authorities; the first expires at {expiry}",
            of_first.len(),
            of_next.len()
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.check_programs()?;

        let data = cluster.secret_data(SECRET).await?;
        let certificates = if data["ca.crt"] == first {
            &mut of_first
        } else {
            &mut of_next
        };
        if certificates.insert(data["tls.crt"].clone()) {
            let authority = if data["ca.crt"] == first { "first" } else { "next" };
            println!("{:.0?}: a certificate of the {authority} authority", start.elapsed());
        }
        let is_expired = Timestamp::now() > expiry + AFTER_EXPIRY;
        if is_expired && !of_next.is_empty() && cluster.no_bundle_has(&first).await? {
            break;
        }
    }

    ensure!(
        of_first.len() >= 3,
        "{} certificates of the first authority",
        of_first.len()
    );
    ensure!(
        cluster.secret(CA_SECRET, "tls.crt").await? != first,
        "the authority was not renewed"
    );
    Ok(())
}
