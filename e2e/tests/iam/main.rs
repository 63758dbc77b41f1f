//! The recorded cases under the roles that cloud controller managers have: after each step AWS and Kubernetes have the
//! same objects as without limits, or the case is in the table of `docs/iam.md`.
//!
//! `OUTRIGGER_IAM=all` (`make iam`) runs all cases; without it a fixed part of them. `OUTRIGGER_IAM_ROLES=kOps,CAPA` runs
//! some roles, and `OUTRIGGER_IAM_ACTIONS=elasticloadbalancing:AddTags,…` removes some actions.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

mod listed;
mod removed;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures::future::join_all;
use listed::Listed;
use outrigger_aws_sim::iam::roles::{self, Role};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_parity::services::{self, Ran};
use outrigger_parity::{Subject, page};

/// Which cases are run when not all are: one of so many.
const SERVICES_OUT_OF: usize = 12;
const NODES_OUT_OF: usize = 6;

/// Differences by the name of the case.
type Differing = BTreeMap<String, Vec<String>>;

fn all() -> bool {
    std::env::var_os("OUTRIGGER_IAM").is_some_and(|value| value == "all")
}

fn roles() -> Vec<Role> {
    let roles = roles::all().unwrap_or_else(|error| panic!("{error:#}"));
    let Ok(wanted) = std::env::var("OUTRIGGER_IAM_ROLES") else {
        return roles;
    };
    let wanted: BTreeSet<&str> = wanted.split(',').collect();
    roles.into_iter().filter(|role| wanted.contains(role.name)).collect()
}

fn cases(of: &str) -> PathBuf {
    Path::new("parity").join(of)
}

/// Compares what differs with the table, for the cases that were run.
fn judge(kind: &str, ran: &[String], by_role: &[(Role, Differing)]) {
    let listed = Listed::read();
    let mut problems = Vec::new();
    for (role, differing) in by_role {
        for case in ran {
            let lines = differing.get(case).map(Vec::as_slice).unwrap_or_default();
            let lines = listed.unlisted(role.name, kind, lines);
            let problem = match (lines.is_empty(), listed.contains(role.name, kind, case)) {
                (false, false) => format!("differs and is not in docs/iam.md:\n    {}", lines.join("\n    ")),
                (true, true) => "is in docs/iam.md and does not differ any more".to_owned(),
                (false, true) | (true, false) => continue,
            };
            problems.push(format!("{}: {kind} {case}: {problem}", role.name));
        }
        println!(
            "{}: {} of {} {kind} cases differ",
            role.name,
            differing.len(),
            ran.len()
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn services_end_under_each_role_as_without_limits_or_are_listed() {
    let mut cases = services::case::load(&cases("services")).expect("cases");
    if !all() {
        cases = cases.into_iter().step_by(SERVICES_OUT_OF).collect();
    }
    let topics = page::topics().expect("the page of differences");
    let mut by_role = Vec::new();
    for role in roles() {
        let folder = RunFolder::new("outrigger-iam-").expect("folder");
        let ran = services::run_as(Subject::Ours, &role, &cases, folder.path()).await;
        let outcomes = ran
            .and_then(Ran::all)
            .unwrap_or_else(|error| panic!("{}: {error:#}", role.name));
        let mut differing = Differing::new();
        for case in &cases {
            let problems = services::compare::problems(case, &outcomes[&case.name], &topics);
            let problems = problems.iter().filter(|problem| problem.is_of_the_end_state());
            let lines: Vec<String> = problems.map(ToString::to_string).collect();
            if !lines.is_empty() {
                println!("{}: service {}: {}", role.name, case.name, lines.join("\n    "));
                differing.insert(case.name.clone(), lines);
            }
        }
        by_role.push((role, differing));
    }
    let ran: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    judge("service", &ran, &by_role);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_end_under_each_role_as_without_limits_or_are_listed() {
    let mut cases = outrigger_parity::case::load(&cases("nodes")).expect("cases");
    if !all() {
        cases.retain(|case| case.node.ready.as_deref() == Some("True")); // others take their time
        cases = cases.into_iter().step_by(NODES_OUT_OF).collect();
    }
    let topics = page::topics().expect("the page of differences");
    let run = async |role: Role| {
        let folder = RunFolder::new("outrigger-iam-").expect("folder");
        let outcomes = outrigger_parity::run_as(Subject::Ours, Some(&role), &cases, folder.path()).await;
        let outcomes = outcomes.unwrap_or_else(|error| panic!("{}: {error:#}", role.name));
        let mut differing = Differing::new();
        for case in &cases {
            let mut problems = outrigger_parity::compare::problems(case, &outcomes[&case.name], &topics);
            problems.retain(|problem| !problem.starts_with("events: "));
            if !problems.is_empty() {
                println!("{}: node {}: {}", role.name, case.name, problems.join("\n    "));
                differing.insert(case.name.clone(), problems);
            }
        }
        (role, differing)
    };
    let mut by_role = Vec::new();
    if all() {
        for role in roles() {
            by_role.push(run(role).await);
        }
    } else {
        by_role = join_all(roles().into_iter().map(run)).await;
    }
    let ran: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    judge("node", &ran, &by_role);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_end_under_each_role_as_without_limits_or_are_listed() {
    let mut by_role = Vec::new();
    let mut fixture = routes::Fixture::start().await;
    let mut roles = roles();
    roles.sort_by_key(|role| role.legacy_tags);
    for role in roles {
        let differing = fixture.run(&role).await;
        for (case, lines) in &differing {
            println!("{}: route {case}: {}", role.name, lines.join("\n    "));
        }
        by_role.push((role, differing));
    }
    judge("route", &routes::CASES.map(str::to_owned), &by_role);
}

#[test]
fn every_row_of_the_table_names_roles_and_cases_that_exist_and_a_reason() {
    let names = |of: &str| -> BTreeSet<String> {
        let files = std::fs::read_dir(cases(of)).expect("cases");
        let stems = files.map(|file| file.expect("a file").path());
        stems
            .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
            .collect()
    };
    let known = BTreeMap::from([
        ("service", names("services")),
        ("node", names("nodes")),
        ("route", routes::CASES.map(str::to_owned).into()),
    ]);
    let roles: BTreeSet<&str> = roles::all().expect("roles").iter().map(|role| role.name).collect();
    for row in Listed::read().rows() {
        assert!(roles.contains(row.role.as_str()), "no role {:?}", row.role);
        assert!(!row.why.is_empty(), "{row:?}: no reason");
        let known = known
            .get(row.kind.as_str())
            .unwrap_or_else(|| panic!("no kind {:?}", row.kind));
        for case in row.cases.iter().filter(|_| row.field().is_none()) {
            assert!(known.contains(case), "{}: no {} case {case:?}", row.role, row.kind);
        }
    }
}
