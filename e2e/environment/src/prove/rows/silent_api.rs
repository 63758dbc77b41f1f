//! Scenario 32: the management API accepts connections and never answers.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::relay::Link;
use outrigger_timeline::{MANAGEMENT_ANSWERS, MANAGEMENT_SILENT};

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::faults::Relays;

/// From the start of a process until it holds M.
const STARTS: Duration = Duration::from_secs(90);
/// Longer than the restart of a watch without events.
const SILENT: Duration = Duration::from_secs(75);
/// Until a process that runs has seen the next phase.
const SEEN: Duration = Duration::from_secs(60);
/// One of these words, in a line that also names what was asked for.
const UNANSWERED: [&str; 4] = ["timed out", "timeout", "no answer", "not answer"];
const ASKED: [&str; 3] = ["cloudprovidermigration", "migration object", "/apis/"];

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let relays = cluster.run_behind_relays().await?;
    starts(cluster, &relays).await?;
    runs(cluster, &relays).await
}

async fn starts(cluster: &mut Cluster, relays: &Relays) -> Result<()> {
    cluster
        .progress
        .step("A manager starts, and the management API does not answer");
    let before = cluster.environment.holder(Lease::M);
    relays.management.set(Link::Silent);
    cluster.environment.mark(MANAGEMENT_SILENT);
    let ended = Timestamp::now();
    cluster.end_leader(true).await?;

    let leases = &cluster.environment.leases;
    let is_next = |holder: &Option<String>| holder.is_some() && *holder != before;
    let acquired = leases
        .wait_until(Lease::M, STARTS * 2, |change| is_next(&change.holder))
        .await;
    let what = "silent management API: M is held by the latch";
    match &acquired {
        Some(change) => cluster.measured(what, ended, change.acquired.unwrap_or(change.at), STARTS),
        None => cluster.expect(false, &format!("{what}: nobody for {} s", STARTS.as_secs() * 2)),
    }
    logged(cluster)?;

    relays.management.set(Link::Open);
    cluster.environment.mark(MANAGEMENT_ANSWERS);
    // A process that waits for its first answer for ever needs an end.
    if acquired.is_none() {
        cluster.end_leader(true).await?;
    }
    cluster
        .environment
        .wait_holder(Lease::M, before.as_deref(), ROLL, &cluster.progress)
        .await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await
}

/// The process names the request without an answer in its log.
fn logged(cluster: &mut Cluster) -> Result<()> {
    let holder = cluster.environment.holder(Lease::C).context("nobody holds C")?;
    let process = cluster.process(&holder)?.process;
    let path = cluster.environment.run.join(format!("pods/{process}.log"));
    let log = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let line = log.lines().find(|line| names_request(line));
    if let Some(line) = line {
        cluster.notes.push(format!("silent management API: {line}"));
    }
    cluster.expect(
        line.is_some(),
        "the log of the manager names the request that got no answer",
    );
    Ok(())
}

fn names_request(line: &str) -> bool {
    let line = line.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    has(&UNANSWERED) && has(&ASKED)
}

async fn runs(cluster: &mut Cluster, relays: &Relays) -> Result<()> {
    cluster
        .progress
        .step("A manager runs, and the management API does not answer for 75 s");
    let (holder, from) = (cluster.environment.holder(Lease::M), Timestamp::now());
    relays.management.set(Link::Silent);
    cluster.environment.mark(MANAGEMENT_SILENT);
    tokio::time::sleep(SILENT).await;
    cluster.keeps_m("silent management API", from, holder.as_deref());

    relays.management.set(Link::Open);
    let answers = Timestamp::now();
    cluster.environment.mark(MANAGEMENT_ANSWERS);
    let completed = cluster.complete().await;
    let what = "the management API answers again: the next phase is observed";
    match completed {
        Ok(()) => cluster.measured(what, answers, Timestamp::now(), SEEN),
        Err(error) => cluster.expect(false, &format!("{what}: {error:#}")),
    }
    tokio::time::sleep(QUIET).await;
    cluster.environment.snapshot().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_request_and_that_it_got_no_answer() {
        assert!(names_request(
            "WARN the list of CloudProviderMigrations timed out after 30s"
        ));
        assert!(!names_request("WARN the list of CloudProviderMigrations failed: 403"));
        assert!(!names_request("WARN renewal of the lease timed out"));
    }
}
