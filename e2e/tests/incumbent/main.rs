//! Our manager beside aws-cloud-controller-manager v1.37: flags, cloud configurations and metrics. A difference is
//! red unless a row of `docs/parity.md` explains it, and so is a row without its difference.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

mod cloud_config;
mod flags;
mod metrics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::Binaries;

/// The programs of both managers.
struct Programs {
    incumbent: PathBuf,
    ours: PathBuf,
}

impl Programs {
    async fn find() -> Self {
        let tools = Tools::load(&[Tool::AwsCloudControllerManager]).await.expect("tools");
        let incumbent = tools.path(Tool::AwsCloudControllerManager).expect("built").to_owned();
        let ours = Binaries::one("outrigger-manager").expect("built");
        Self { incumbent, ours }
    }
}

fn page(name: &str) -> String {
    let path = Path::new("../docs").join(name);
    std::fs::read_to_string(path).expect("a page of docs")
}

/// Fails unless the differences are those of `listed`, pairs of a difference and the topic of a row in
/// `docs/parity.md`.
fn explained<'a>(found: impl IntoIterator<Item = &'a str>, listed: &[(&'a str, &str)]) {
    let topics = outrigger_parity::page::topics().expect("docs/parity.md");
    for (difference, topic) in listed {
        assert!(
            topics.contains(*topic),
            "{difference}: docs/parity.md has no row {topic:?}"
        );
    }

    let found: BTreeSet<&str> = found.into_iter().collect();
    let listed: BTreeSet<&str> = listed.iter().map(|(difference, _)| *difference).collect();
    let unlisted: Vec<&&str> = found.difference(&listed).collect();
    let gone: Vec<&&str> = listed.difference(&found).collect();
    assert!(
        unlisted.is_empty() && gone.is_empty(),
        "differences that no row explains: {unlisted:#?}\nrows without a difference: {gone:#?}"
    );
}
