//! The golden cases of the webhook, as real API servers of the oldest and the newest minor live through them: by
//! server-side apply, by kubectl's client-side apply, and by its server-side apply. What is stored must be what the case
//! expects, the client must see the warnings that it expects, and writing the same again must change nothing.
//!
//! kubectl reads the API server's whole schema at each start, which takes most of the time. Unless `OUTRIGGER_GOLDEN=all`, each of
//! its two ways writes a group of cases on one of the two versions only.
//!
//! | what | file |
//! |---|---|
//! | the cases as files | `cases.rs` |
//! | definitions of the kinds, made from the table of rules | `definitions.rs` |
//! | one group of cases with the same migrations | `group.rs` |
//! | when the webhook has seen a change | `barrier.rs` |
//! | what must have come of a case | `verdict.rs` |
//! | kubectl | `kubectl.rs` |

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says on stdout what it has seen"
)]

mod barrier;
#[allow(dead_code, reason = "another test of the same bench uses the rest")]
#[path = "../admission/bench.rs"]
mod bench;
mod cases;
mod definitions;
mod group;
mod kubectl;
#[allow(dead_code, reason = "another test of the same bench uses the rest")]
#[path = "../admission/objects.rs"]
mod objects;
mod verdict;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::cluster::Version;

use bench::Bench;
use group::{Fixture, Way};

/// Every case is written in every way when it is `all`.
const EXTENT: &str = "OUTRIGGER_GOLDEN";
/// The share of all cases, in hundredths, that an API server must have lived through in each way.
const AT_LEAST: usize = 85;

async fn every_case_on(version: Version, range: &str, address: &str) -> Result<()> {
    let start = Instant::now();
    let run = tempfile::tempdir()?;
    let bench = Bench::build(run.path(), version, range, address).await?;
    definitions::install(&bench).await.context("definitions")?;
    definitions::open_kube_system(&bench).await.context("registration")?;
    let cases = cases::read()?;
    let fixture = Fixture::new(bench).await?;
    let mut run_by: BTreeMap<Way, usize> = BTreeMap::new();
    let (mut left_out, mut wrong) = (Vec::new(), Vec::new());
    let all = std::env::var(EXTENT).is_ok_and(|extent| extent == "all");
    let groups = cases::grouped(&cases);
    println!(
        "{version:?} {:6.1?}: {} cases in {} groups",
        start.elapsed(),
        cases.len(),
        groups.len()
    );
    for (number, group) in groups.iter().enumerate() {
        let report = group::run(
            &fixture,
            number,
            group,
            if all { &Way::ALL } else { part(version, number) },
        )
        .await
        .with_context(|| format!("the group of {}", group[0].name))?;
        for (way, count) in report.run {
            *run_by.entry(way).or_default() += count;
        }
        left_out.extend(report.left_out);
        wrong.extend(report.wrong);
    }
    println!("{version:?} {:6.1?}: {run_by:?} of {}", start.elapsed(), cases.len());
    for line in &left_out {
        println!("  {version:?} left out: {line}");
    }
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    for way in Way::ALL {
        let count = run_by.get(&way).copied().unwrap_or_default();
        let at_least = if all || way == Way::ServerSide {
            AT_LEAST
        } else {
            AT_LEAST / 4
        };
        ensure!(
            count * 100 >= cases.len() * at_least,
            "by {way:?} only {count} of {} cases",
            cases.len()
        );
    }
    Ok(())
}

/// The ways of a group of cases. Each way of kubectl writes each group on one of the two versions.
fn part(version: Version, group: usize) -> &'static [Way] {
    if group.is_multiple_of(2) == (version == Version::V1_26) {
        &[Way::ServerSide, Way::Kubectl]
    } else {
        &[Way::ServerSide, Way::KubectlServerSide]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_golden_case_on_kubernetes_1_26() {
    if let Err(error) = every_case_on(Version::V1_26, "127.86.0.0/16", "127.86.0.10").await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_golden_case_on_kubernetes_1_36() {
    if let Err(error) = every_case_on(Version::V1_36, "127.87.0.0/16", "127.87.0.10").await {
        panic!("{error:#}");
    }
}
