//! The tables of docs/status.md are those of the code. `UPDATE_DOCS=1` writes them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use outrigger_evidence::facts::WatchFailure;
use outrigger_evidence::reasons::{Ends, REASONS};
use outrigger_evidence::why::{Missing, NodeIpamProblem};
use outrigger_shared::migration::Phase;

const PAGE: &str = "../../docs/status.md";

#[test]
fn the_tables_of_the_page_are_those_of_the_code() {
    let found = std::fs::read_to_string(PAGE).unwrap();
    let wanted = with(&with(&found, "reasons", &reasons()), "missing", &missing());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
        return;
    }
    assert!(
        found == wanted,
        "docs/status.md is out of date: run UPDATE_DOCS=1 cargo test -p outrigger-evidence --test status_page"
    );
}

fn with(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{table}{end}{after}")
}

fn reasons() -> String {
    let mut text = "| reason | meaning | end |\n|---|---|---|\n".to_owned();
    for reason in REASONS {
        let ends = match reason.ends {
            Ends::Reached(next) => format!("the state of the phase is reached. Next: {next}"),
            Ends::Itself => "by itself".to_owned(),
            Ends::Person(fix) => fix.to_owned(),
        };
        writeln!(text, "| `{}` | {} | {ends} |", reason.code, reason.meaning).unwrap();
    }
    text
}

#[test]
fn each_reason_of_the_code_is_in_the_table() {
    let source = std::fs::read_to_string("src/why.rs").unwrap();
    let defined: BTreeSet<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub const ")?.split('"').nth(1))
        .collect();
    // Codes of warnings, and a reason of the condition Completed only.
    let others = [
        "MigrationUnreadable",
        "MirrorPodIgnored",
        "AttestationLeftOver",
        "NotYet",
    ];
    let in_table: BTreeSet<&str> = REASONS.iter().map(|reason| reason.code).chain(others).collect();
    assert_eq!(defined, in_table);
}

/// One of each, in the order of the enum. The match has to have each variant, so a new one is noticed here.
fn samples() -> Vec<Missing> {
    let failure = || WatchFailure {
        message: "ERROR".into(),
        is_forbidden: true,
    };
    let pod = || "Pod kube-system/NAME".to_owned();
    let all = vec![
        Missing::MainLeaseUnwatched(failure()),
        Missing::MigrationLeaseUnwatched(failure()),
        Missing::MainLeaseIdle,
        Missing::MigrationLeaseIdle,
        Missing::TwoHolders {
            main: "A".into(),
            migration: "B".into(),
        },
        Missing::ShortDuration {
            shortest: Duration::from_secs(8),
            deadline: Duration::from_secs(10),
        },
        Missing::Coordinated,
        Missing::LeftOn(pod()),
        Missing::Unreadable {
            object: pod(),
            reason: "REASON".into(),
            may_be_attested: true,
        },
        Missing::Places(vec!["PLACE: ERROR".into()]),
        Missing::NoneFound(Vec::new()),
        Missing::Configuration {
            object: pod(),
            why: "REASON".into(),
        },
        Missing::Configurations(pod(), "Pod kube-system/OTHER".into()),
        Missing::Routes(pod()),
        Missing::NodeIpam(pod(), NodeIpamProblem::Both),
        Missing::NodeIpam(pod(), NodeIpamProblem::Neither),
    ];
    for missing in &all {
        match missing {
            Missing::MainLeaseUnwatched(_)
            | Missing::MigrationLeaseUnwatched(_)
            | Missing::MainLeaseIdle
            | Missing::MigrationLeaseIdle
            | Missing::TwoHolders { .. }
            | Missing::ShortDuration { .. }
            | Missing::Coordinated
            | Missing::LeftOn(_)
            | Missing::Unreadable { .. }
            | Missing::Places(_)
            | Missing::NoneFound(_)
            | Missing::Configuration { .. }
            | Missing::Configurations(..)
            | Missing::Routes(_)
            | Missing::NodeIpam(..)
            // Their codes are reasons.
            | Missing::Unguarded(_)
            | Missing::Unlocked { .. }
            | Missing::Listing(_)
            | Missing::NewLeader(_)
            | Missing::Leader(_) => {}
        }
    }
    all
}

fn missing() -> String {
    let mut text = "| code | observation | fix |\n|---|---|---|\n".to_owned();
    for missing in samples() {
        let item = missing.item(Some(Phase::Prepare));
        writeln!(text, "| `{}` | {} | {} |", item.code, item.observation, item.fix).unwrap();
    }
    text
}
