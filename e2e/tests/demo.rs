//! The program behind `make demo`, as a person or a script runs it.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "test helpers")]

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
    let output = demo().arg("migrate").output().await.expect("it runs");
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
    for step in ["Before the migration", "Prepare", "Migrate", "New work", "Complete"] {
        assert!(stdout.contains(step), "no step {step}");
    }
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
