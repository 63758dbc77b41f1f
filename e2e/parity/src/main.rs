//! `outrigger-parity record|compare FOLDER…`: what `make parity-record` runs, and the same comparison as the tests'.
//! `outrigger-parity draw --seed=N --count=K FOLDER`: writes cases of Services drawn at random, which are recorded as the
//! others are; `compare-drawn FOLDER [OURS]` compares them, or what the run before wrote into its `ours.json`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use outrigger_cluster_harness::command;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_parity::{Kind, Subject, case, compare, page, run, services};
use serde_json::json;

const USAGE: &str =
    "usage: outrigger-parity record|compare FOLDER…, draw --seed=N --count=K FOLDER, or compare-drawn FOLDER [OURS]";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = command::begin();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["record", folders @ ..] if !folders.is_empty() => each(folders, true).await,
        ["compare", folders @ ..] if !folders.is_empty() => each(folders, false).await,
        ["compare-drawn", folder] => compare_drawn(Path::new(folder), None).await,
        ["compare-drawn", folder, ours] => compare_drawn(Path::new(folder), Some(Path::new(ours))).await,
        ["draw", seed, count, folder] => draw(seed, count, Path::new(folder)),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };

    command::end("outrigger-parity", done)
}

/// Cases to be recorded and compared.
fn draw(seed: &str, count: &str, folder: &Path) -> Result<bool> {
    let number = |word: &str, name: &str| -> Result<u64> {
        let value = word.strip_prefix(name).with_context(|| format!("{word}: {USAGE}"))?;
        value.parse().with_context(|| format!("{word}: not a number"))
    };
    let (seed, count) = (number(seed, "--seed=")?, number(count, "--count=")?);
    services::draw(seed, usize::try_from(count)?, folder)?;
    Ok(true)
}

async fn each(folders: &[&str], record: bool) -> Result<bool> {
    let mut good = true;
    for folder in folders {
        let folder = Path::new(folder);
        good &= match (Kind::of(folder)?, record) {
            (Kind::Nodes, true) => record_nodes(folder).await.map(|()| true),
            (Kind::Services, true) => record_services(folder).await.map(|()| true),
            (Kind::Nodes, false) => compare_nodes(folder).await,
            (Kind::Services, false) => compare_services(folder).await,
        }?;
    }

    Ok(good)
}

/// Runs the incumbent and writes what it made of each Node into the case's file.
async fn record_nodes(folder: &Path) -> Result<()> {
    let cases = case::load(folder)?;
    let run_folder = run_folder()?;
    let outcomes = in_folder(run(Subject::Incumbent, &cases, run_folder.path()).await, &run_folder)?;
    let mut changed = 0;

    for case in &cases {
        let outcome = outcomes.get(&case.name).context("a case without an outcome")?;
        changed += usize::from(case.recorded.as_ref() != Some(outcome));
        case::record(folder, &case.name, outcome)?;
    }

    recorded(cases.len(), changed)
}

/// The same for Services.
async fn record_services(folder: &Path) -> Result<()> {
    let cases = services::case::load(folder)?;
    let run_folder = run_folder()?;
    let ran = services::run(Subject::Incumbent, &cases, run_folder.path()).await;
    let ran = in_folder(ran, &run_folder)?;
    let mut changed = 0;

    for case in &cases {
        let Some(outcome) = ran.outcomes.get(&case.name) else {
            continue; // said below
        };
        changed += usize::from(case.recorded.as_ref() != Some(outcome));
        services::case::record(folder, &case.name, outcome)?;
    }

    let number = ran.outcomes.len();
    in_folder(ran.all(), &run_folder)?;

    recorded(number, changed)
}

fn recorded(cases: usize, changed: usize) -> Result<()> {
    say(&format!(
        "{cases} cases recorded, {changed} of them changed; read the diff"
    ))
}

/// Runs our manager on the recorded Nodes and prints what differs.
async fn compare_nodes(folder: &Path) -> Result<bool> {
    let cases = case::load(folder)?;
    let topics = page::topics()?;
    let run_folder = run_folder()?;
    let outcomes = in_folder(run(Subject::Ours, &cases, run_folder.path()).await, &run_folder)?;
    let mut problems = BTreeMap::new();

    for case in &cases {
        let ours = outcomes.get(&case.name).context("a case without an outcome")?;
        problems.insert(case.name.as_str(), compare::problems(case, ours, &topics));
    }

    told(&problems, &run_folder)
}

/// The same for Services. `differs.jsonl` of the run's folder has what would have to stand in `differs` of the cases,
/// `outcomes.json` what ours made of them.
async fn compare_services(folder: &Path) -> Result<bool> {
    let cases = services::case::load(folder)?;
    let topics = page::topics()?;
    let run_folder = run_folder()?;
    let ran = services::run(Subject::Ours, &cases, run_folder.path()).await;
    let outcomes = in_folder(ran.and_then(services::Ran::all), &run_folder)?;
    let mut problems = BTreeMap::new();
    let kept = std::fs::File::create(run_folder.path().join("outcomes.json"))?;
    serde_json::to_writer(kept, &outcomes)?;

    let mut rows = std::fs::File::create(run_folder.path().join("differs.jsonl"))?;
    for case in &cases {
        let ours = outcomes.get(&case.name).context("a case without an outcome")?;
        let found = services::compare::problems(case, ours, &topics);
        for problem in found.iter().filter(|problem| !problem.step.is_empty()) {
            let row = json!({"case": case.name, "step": problem.step, "field": problem.field, "ours": problem.ours});
            writeln!(rows, "{row}")?;
        }

        let found = found.iter().map(ToString::to_string).collect();
        problems.insert(case.name.as_str(), found);
    }

    told(&problems, &run_folder)
}

/// Runs our manager on drawn cases, or takes what it made of them, and prints what cannot be.
async fn compare_drawn(folder: &Path, ours: Option<&Path>) -> Result<bool> {
    let cases = services::case::load(folder)?;
    let known = page::topics()?;
    if let Some(topic) = services::judge::topics().find(|topic| !known.contains(*topic)) {
        anyhow::bail!("docs/parity.md has no row {topic:?}");
    }

    let run_folder = run_folder()?;
    let outcomes: BTreeMap<String, Vec<services::Outcome>> = match ours {
        Some(file) => serde_json::from_str(&std::fs::read_to_string(file)?)?,
        None => {
            let ran = services::run(Subject::Ours, &cases, run_folder.path()).await;
            in_folder(ran.and_then(services::Ran::all), &run_folder)?
        }
    };

    std::fs::write(run_folder.path().join("ours.json"), serde_json::to_string(&outcomes)?)?;

    let mut problems = BTreeMap::new();
    for case in &cases {
        let ours = outcomes.get(&case.name).context("a case without an outcome")?;
        let found = services::judge::problems(case, ours);
        problems.insert(case.name.as_str(), found.iter().map(ToString::to_string).collect());
    }

    told(&problems, &run_folder)
}

/// The run's folder stays where there are problems.
fn told(problems: &BTreeMap<&str, Vec<String>>, run_folder: &RunFolder) -> Result<bool> {
    for (case, problems) in problems {
        for problem in problems {
            say(&format!("{case}: {problem}"))?;
        }
    }

    let good = problems.values().filter(|problems| problems.is_empty()).count();
    say(&format!(
        "{good} of {} cases are equal, or differ as they say",
        problems.len()
    ))?;

    let all = good == problems.len();
    if !all {
        say(&format!("logs: {}", run_folder.keep().display()))?;
    }

    Ok(all)
}

fn in_folder<T>(done: Result<T>, run_folder: &RunFolder) -> Result<T> {
    done.with_context(|| format!("logs: {}", run_folder.keep().display()))
}

fn run_folder() -> Result<RunFolder> {
    Ok(RunFolder::new("outrigger-parity-")?)
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
