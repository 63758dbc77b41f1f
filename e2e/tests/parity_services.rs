//! Our manager on the recorded cases of Services, beside what aws-cloud-controller-manager v1.37.0 made of them.
//!
//! `OUTRIGGER_PARITY_SERVICES=FOLDER` takes the cases of another folder, recorded by `make parity-record CASES=FOLDER`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_parity::services::{Case, Ran, case, compare, run};
use outrigger_parity::{Subject, page};

/// The environment variable that names another folder of cases.
const CASES: &str = "OUTRIGGER_PARITY_SERVICES";

fn own_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/services")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_service_ends_as_under_v1_37_0_or_differs_as_the_page_of_parity_says() {
    let folder = std::env::var_os(CASES).map_or_else(own_cases, PathBuf::from);
    let cases = case::load(&folder).expect("cases");
    let run_folder = RunFolder::new("outrigger-parity-").expect("folder");
    let topics = page::topics().expect("the page of differences");
    let bad = differing(&cases, run_folder.path(), &topics).await;
    assert!(bad.is_empty(), "{bad:?} differ");
}

/// Runs our manager and names the cases that are not as they have to be.
async fn differing(cases: &[Case], folder: &Path, topics: &BTreeSet<String>) -> BTreeSet<String> {
    let outcomes = match run(Subject::Ours, cases, folder).await.and_then(Ran::all) {
        Ok(outcomes) => outcomes,
        Err(error) => panic!("{error:#}"),
    };
    let mut bad = BTreeSet::new();
    for case in cases {
        for problem in compare::problems(case, &outcomes[&case.name], topics) {
            println!("{} ({}): {problem}", case.name, case.about);
            bad.insert(case.name.clone());
        }
    }
    bad
}

#[test]
fn the_cases_are_as_many_as_the_page_says_and_each_is_recorded() {
    let cases = case::load(&own_cases()).expect("cases");
    let page = page::read().expect("the page of differences");
    assert_eq!(
        Some(cases.len()),
        page::number_before(&page, " Services."),
        "docs/parity.md"
    );
    let unrecorded = cases.iter().filter(|case| case.recorded.is_none());
    let missing: Vec<&str> = unrecorded.map(|case: &Case| case.name.as_str()).collect();
    assert!(
        missing.is_empty(),
        "not recorded: {missing:?}; run `make parity-record`"
    );
}

#[test]
fn every_difference_has_its_row_and_its_reason() {
    let topics = page::topics().expect("the page of differences");
    for case in case::load(&own_cases()).expect("cases") {
        for difference in &case.differs {
            let (field, topic) = (&difference.field, &difference.parity);
            assert!(topics.contains(topic), "{}: no row {topic:?}", case.name);
            assert!(
                !difference.why.is_empty(),
                "{}: {field} differs without a reason",
                case.name
            );
        }
    }
    for topic in compare::GENERAL {
        assert!(topics.contains(topic), "no row {topic:?}");
    }
}
