//! The golden cases of the webhook on real API servers of the oldest and the newest minor, written by server-side apply,
//! by kubectl's client-side apply, and by its server-side apply. The stored object must be the expected one, the client
//! must see the expected warnings, and a second write of the same object must change nothing. Kinds with a published
//! definition have its schema.
//!
//! kubectl reads schemas at each start, which takes most of the time. So it starts once for a group of cases. Its client-side
//! apply writes a group on one of the two versions only, and its server-side apply, whose requests are those of this test,
//! some groups on the other version, unless `OUTRIGGER_GOLDEN=all`.
//!
//! | what | file |
//! |---|---|
//! | the cases as files | `cases.rs` |
//! | published definitions of the kinds, or open ones | `definitions.rs` |
//! | calls for one Pod | `calls.rs` |
//! | one group of cases with the same migrations | `group.rs` |
//! | the cases that it leaves out | `left_out.rs` |
//! | when the webhook has seen a change | `barrier.rs` |
//! | fields that the published definitions require | `required.rs` |
//! | the checks of a case | `verdict.rs` |
//! | kubectl | `kubectl.rs` |

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what it has seen"
)]

mod barrier;
#[allow(dead_code, reason = "another test of the same bench uses the rest")]
#[path = "../admission/bench.rs"]
mod bench;
mod calls;
mod cases;
mod definitions;
mod group;
mod kubectl;
mod left_out;
#[allow(dead_code, reason = "another test of the same bench uses the rest")]
#[path = "../admission/objects.rs"]
mod objects;
#[path = "../../../shared/tests/published/mod.rs"]
mod published;
mod required;
mod verdict;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::cluster::Version;

use bench::Bench;
use group::{Fixture, Way};

/// Every case is written in every way when it is `all`.
const EXTENT: &str = "OUTRIGGER_GOLDEN";

async fn every_case_on(version: Version, range: &str, address: &str) -> Result<()> {
    let start = Instant::now();
    let run = tempfile::tempdir()?;
    let bench = Bench::build(run.path(), version, range, address).await?;
    let cases = cases::read()?;
    definitions::install(&bench, &cases).await.context("definitions")?;
    definitions::open_kube_system(&bench).await.context("registration")?;
    calls::one_for_each_pod(&bench).await.context("calls for one Pod")?;
    let fixture = Fixture::new(bench).await?;
    let mut run_by: BTreeMap<Way, usize> = BTreeMap::new();
    let (mut wrong, mut with_null) = (Vec::new(), 0);
    let all = std::env::var(EXTENT).is_ok_and(|extent| extent == "all");
    let groups = cases::grouped(&cases);
    println!(
        "{version:?} {:6.1?}: {} cases in {} groups",
        start.elapsed(),
        cases.len(),
        groups.len()
    );
    let mut prepared = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let ways = if all { &Way::ALL } else { part(version, number) };
        let group = group::prepare(&fixture, number, group, ways).await;
        prepared.push(group.with_context(|| format!("group {number}, before the migrations"))?);
    }
    let left_out: BTreeMap<String, String> = prepared
        .iter_mut()
        .flat_map(|group| std::mem::take(&mut group.report.left_out))
        .collect();
    wrong.extend(left_out::check(version, &left_out));
    println!("{version:?} {:6.1?}: prepared, {wrong:#?}", start.elapsed());
    let for_kubectl: usize = prepared.iter().map(group::Prepared::writes_by_kubectl).sum();
    group::write_before(&fixture, &prepared).await?;

    for (group, cases) in prepared.into_iter().zip(&groups) {
        let report = group::run(&fixture, group).await;
        let report = report.with_context(|| format!("the group of {}", cases[0].name))?;
        for (way, count) in report.run {
            *run_by.entry(way).or_default() += count;
        }
        wrong.extend(report.wrong);
        with_null += report.with_null;
    }
    println!("{version:?} {:6.1?}: {run_by:?} of {}", start.elapsed(), cases.len());
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));

    let count = |way| run_by.get(&way).copied().unwrap_or_default();
    let written = cases.len() - left_out.len();
    let by_kubectl = count(Way::Kubectl) + count(Way::KubectlServerSide) + with_null;
    ensure!(
        count(Way::ServerSide) == written && by_kubectl == for_kubectl,
        "not all of {written} cases are written: {run_by:?}, {with_null} with a null"
    );
    ensure!(
        !all || for_kubectl == 2 * written,
        "{for_kubectl} of {written} by kubectl"
    );
    Ok(())
}

/// The ways of a group of cases.
fn part(version: Version, group: usize) -> &'static [Way] {
    if group.is_multiple_of(2) == (version == Version::V1_26) {
        &[Way::ServerSide, Way::Kubectl]
    } else if group.is_multiple_of(3) {
        &[Way::ServerSide, Way::KubectlServerSide]
    } else {
        &[Way::ServerSide]
    }
}

#[test]
fn client_side_apply_writes_each_group_once_and_server_side_apply_one_of_three() {
    let versions = [Version::V1_26, Version::V1_36];
    let count = |group, way| {
        let of_version = |version: &&Version| part(**version, group).contains(&way);
        versions.iter().filter(of_version).count()
    };
    assert!((0..60).all(|group| count(group, Way::Kubectl) == 1));
    assert!((0..60).all(|group| count(group, Way::ServerSide) == 2));
    let by_server_side: usize = (0..60).map(|group| count(group, Way::KubectlServerSide)).sum();
    assert_eq!(by_server_side, 20);
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
