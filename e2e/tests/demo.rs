//! The program behind `make demo`, as a person or a script runs it.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "test helpers")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use outrigger_timeline::Limits;
use tokio::process::Command;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger-demo"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.env("OUTRIGGER_BESIDE_OTHER_WORK", "1");
    command
}

#[tokio::test]
async fn the_demo_ends_with_the_proof_as_the_last_line_of_stdout() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = demo().arg("migrate").current_dir(folder.path()).output().await;
    let output = output.expect("it runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    println!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    let last = stdout.lines().last().expect("a last line");
    let figures = last.strip_prefix("proof: ").expect("the proof");
    let figures: serde_json::Value = serde_json::from_str(figures).expect("JSON");
    for zero in [
        "overlap_ms",
        "aws_writes_by_switch",
        "load_balancers_recreated",
        "targets_lost",
    ] {
        assert_eq!(figures[zero], 0, "{zero}");
    }
    let limit = Limits::default().beside_other_work().old_to_new.as_millis();
    let gap = figures["gap_ms"].as_u64().map(u128::from);
    assert!(gap.is_some_and(|gap| gap <= limit), "{figures}");
    assert_eq!(steps_without_number_and_time(&stdout), Vec::<String>::new());

    let page = fs::read_to_string(folder.path().join("target/demo/report.html")).expect("the page");
    assert!(
        page.contains("<title>A migration by make demo: proven</title>"),
        "{page}"
    );
    for phase in ["InTree", "Prepare", "Migrate"] {
        assert!(page.contains(&format!(">{phase}</text>")), "{phase} is not in\n{page}");
    }
    assert!(
        page.matches("<title>no owner for 1").count() >= 2,
        "both times without an owner: {page}"
    );
    let total = stdout.lines().next().expect("a first line");
    assert!(
        total.starts_with("8 steps, about ") && total.ends_with(" min"),
        "{total}"
    );
    let results = stdout.split_once("== The timeline\n").expect("the timeline").1;
    let widest = results.lines().map(|line| line.chars().count()).max();
    assert!(
        results.lines().count() > 20 && widest <= Some(WIDEST),
        "{widest:?}\n{results}"
    );
}

/// The most columns of a table that a terminal shows without a line break.
const WIDEST: usize = 160;

/// The steps of the migration.
const STEPS: [&str; 8] = [
    "The environment",
    "Before the migration",
    "Install",
    "Prepare",
    "Migrate",
    "New work",
    "Complete",
    "Replace",
];

/// The headings that are not `== step 3 of 7, about 1 min: Install…`, in this order.
fn steps_without_number_and_time(stdout: &str) -> Vec<String> {
    let headings = stdout.lines().filter_map(|line| line.strip_prefix("== "));
    let headings: Vec<&str> = headings.take(STEPS.len()).collect();
    let wrong = (1..).zip(STEPS).filter(|(number, step)| {
        let place = format!("step {number} of {}, about ", STEPS.len());
        let rest = headings
            .get(number - 1)
            .and_then(|heading| heading.strip_prefix(&place));
        let Some((time, name)) = rest.and_then(|rest| rest.split_once(": ")) else {
            return true;
        };
        let amount = time.strip_suffix(" min").or_else(|| time.strip_suffix(" s"));
        !name.starts_with(step) || amount.is_none_or(|amount| amount.parse::<u32>().is_err())
    });
    wrong
        .map(|(number, step)| format!("{number} {step}: {headings:?}"))
        .collect()
}

/// `make binaries` with a program in place of cargo, which leaves a folder of outputs as cargo does, and a target folder that
/// has these folders.
async fn make_binaries(folders: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let (programs, cache) = (folder.path().join("programs"), folder.path().join("cache"));
    fs::create_dir_all(&programs).expect("create");
    let cargo = programs.join("cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\nmkdir -p \"$CARGO_TARGET_DIR/debug/deps\"\necho \"cargo $*\"\n",
    )
    .expect("write");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("permissions");
    for target in folders {
        fs::create_dir_all(cache.join("target").join(target)).expect("create");
    }

    let path = std::env::var("PATH").expect("PATH");
    let root = Path::new("..").canonicalize().expect("the root");
    let mut command = Command::new("make");
    command.arg("binaries").current_dir(root).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", programs.display()));
    command
        .env("OUTRIGGER_CACHE", &cache)
        .env("CARGO_TARGET_DIR", cache.join("target"));
    // Those of a `make test` that runs this test.
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(name);
    }

    let output = command.output().await.expect("make");
    let text = [output.stderr, output.stdout].concat();
    String::from_utf8(text).expect("text")
}

#[tokio::test]
async fn a_first_build_says_how_long_it_takes() {
    let cold = make_binaries(&[]).await;
    let (note, build) = cold.split_once('\n').expect("two lines");
    assert!(
        note.starts_with("compiling the workspace") && note.contains(" min on two cores"),
        "{cold}"
    );
    assert_eq!(build, "cargo build --locked --workspace\n");
    assert_eq!(
        make_binaries(&["debug/deps"]).await,
        "cargo build --locked --workspace\n"
    );
}

#[tokio::test]
async fn words_that_the_demo_does_not_know_end_it_with_its_usage() {
    let output = demo().args(["migrate", "--fast"]).output().await.expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: outrigger-demo migrate [--keep] | incumbent"));
    assert!(output.stdout.is_empty());
}

#[tokio::test]
async fn an_unknown_scenario_is_refused_with_exit_code_2_and_those_that_exist() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger-prove"));
    let output = command.arg("--scenario=1,99").output().await.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("there is no scenario \"99\"; there are 1, 2, 3"),
        "{text}"
    );
}
