//! `outrigger-parity record|compare FOLDER`: what `make parity-record` runs, and the same comparison as the test's.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use outrigger_e2e::command;
use outrigger_e2e::parity::{Subject, case, compare, run};

const USAGE: &str = "usage: outrigger-parity record|compare FOLDER";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = command::begin();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["record", folder] => record(Path::new(folder)).await.map(|()| true),
        ["compare", folder] => compare_all(Path::new(folder)).await,
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    command::end("outrigger-parity", done)
}

/// Runs the incumbent and writes what it made of each case into the case's file.
async fn record(folder: &Path) -> Result<()> {
    let cases = case::load(folder)?;
    let run_folder = run_folder()?;
    let outcomes = run(Subject::Incumbent, &cases, &run_folder)
        .await
        .with_context(|| format!("logs: {}", run_folder.display()))?;
    let mut changed = 0;
    for case in &cases {
        let outcome = outcomes.get(&case.name).context("a case without an outcome")?;
        changed += usize::from(case.recorded.as_ref() != Some(outcome));
        case::record(folder, &case.name, outcome)?;
    }
    std::fs::remove_dir_all(&run_folder).with_context(|| run_folder.display().to_string())?;
    say(&format!(
        "{} cases recorded, {changed} of them changed; read the diff",
        cases.len()
    ))
}

/// Runs our manager on the recorded cases and prints what differs.
async fn compare_all(folder: &Path) -> Result<bool> {
    let cases = case::load(folder)?;
    let page = std::fs::read_to_string("docs/parity.md").context("docs/parity.md: run this in the project's folder")?;
    let topics = compare::topics(&page);
    let run_folder = run_folder()?;
    let outcomes = run(Subject::Ours, &cases, &run_folder)
        .await
        .with_context(|| format!("logs: {}", run_folder.display()))?;
    let mut good = 0;
    for case in &cases {
        let ours = outcomes.get(&case.name).context("a case without an outcome")?;
        let problems = compare::problems(case, ours, &topics);
        good += usize::from(problems.is_empty());
        for problem in problems {
            say(&format!("{}: {problem}", case.name))?;
        }
    }
    say(&format!(
        "{good} of {} cases are equal, or differ as they say; logs: {}",
        cases.len(),
        run_folder.display()
    ))?;
    Ok(good == cases.len())
}

fn run_folder() -> Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("outrigger-parity-").tempdir()?.keep())
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
