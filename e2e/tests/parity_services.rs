//! The results of our manager for the recorded cases of Services, compared with those of aws-cloud-controller-manager
//! v1.37.
//!
//! `OUTRIGGER_PARITY_SERVICES=FOLDER` takes the cases of another folder, recorded by `make parity-record CASES=FOLDER`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_parity::services::{Ran, case, compare, run};
use outrigger_parity::{Subject, page};

/// The environment variable that names another folder of cases.
const CASES: &str = "OUTRIGGER_PARITY_SERVICES";

fn own_cases() -> PathBuf {
    PathBuf::from("parity/services")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_service_ends_as_under_v1_37_or_differs_as_the_page_of_parity_says() {
    let folder = std::env::var_os(CASES).map_or_else(own_cases, PathBuf::from);
    let cases = case::load(&folder).expect("cases");
    let run_folder = RunFolder::new("outrigger-parity-").expect("folder");
    let ran = run(Subject::Ours, &cases, run_folder.path()).await;
    let outcomes = ran.and_then(Ran::all).unwrap_or_else(|error| panic!("{error:#}"));
    let topics = page::topics().expect("the page of differences");
    let mut bad = BTreeSet::new();
    for case in &cases {
        for problem in compare::problems(case, &outcomes[&case.name], &topics) {
            println!("{} ({}): {problem}", case.name, case.about);
            bad.insert(&case.name);
        }
    }
    assert!(bad.is_empty(), "{bad:?} differ");
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
    let missing: Vec<&String> = unrecorded.map(|case| &case.name).collect();
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
            let why = &difference.why;
            assert!(!why.is_empty(), "{}: {field} differs without a reason", case.name);
        }
    }
    for topic in compare::GENERAL {
        assert!(topics.contains(topic), "no row {topic:?}");
    }
}
