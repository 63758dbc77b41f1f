//! `outrigger-parity record|compare FOLDER…`: the program of `make parity-record`, and the comparison of the tests.
//! `outrigger-parity draw --seed=N --count=K FOLDER` writes random cases of Services, which `record` records.
//! `outrigger-parity compare-drawn FOLDER [OURS]` compares them; OURS is the `ours.json` of an earlier comparison.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use outrigger_cluster_harness::command;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_parity::{Kind, Subject, case, compare, page, run, services};
use serde::Serialize;
use serde_json::json;

const USAGE: &str =
    "usage: outrigger-parity record|compare FOLDER…, draw --seed=N --count=K FOLDER, or compare-drawn FOLDER [OURS]";

/// The problems of each case, by its name.
type Problems = BTreeMap<String, Vec<String>>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = command::begin();
    command::end("outrigger-parity", execute(&arguments).await)
}

async fn execute(arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut good = true;
    match words.as_slice() {
        ["record", folders @ ..] if !folders.is_empty() => {
            for folder in folders.iter().map(Path::new) {
                good &= in_run_folder(async |run_folder| record(folder, run_folder).await).await?;
            }
        }
        ["compare", folders @ ..] if !folders.is_empty() => {
            for folder in folders.iter().map(Path::new) {
                good &= in_run_folder(async |run_folder| print(&problems(folder, run_folder).await?)).await?;
            }
        }
        ["compare-drawn", folder, ours @ ..] if ours.len() < 2 => {
            let (folder, ours) = (Path::new(folder), ours.first().map(Path::new));
            good = in_run_folder(async |run_folder| print(&problems_of_drawn(folder, ours, run_folder).await?)).await?;
        }
        ["draw", seed, count, folder] => {
            let count = usize::try_from(number(count, "--count=")?)?;
            services::draw(number(seed, "--seed=")?, count, Path::new(folder))?;
        }
        _ => bail!("{USAGE}"),
    }

    Ok(good)
}

fn number(word: &str, name: &str) -> Result<u64> {
    let value = word.strip_prefix(name).with_context(|| format!("{word}: {USAGE}"))?;
    value.parse().with_context(|| format!("{word}: not a number"))
}

/// The folder of a run stays after an error or a problem.
async fn in_run_folder(work: impl AsyncFnOnce(&Path) -> Result<bool>) -> Result<bool> {
    let folder = RunFolder::new("outrigger-parity-")?;
    let done = work(folder.path()).await;
    let good = done.with_context(|| format!("logs: {}", folder.keep().display()))?;
    if !good {
        say(&format!("logs: {}", folder.keep().display()))?;
    }
    Ok(good)
}

/// Runs the incumbent and writes its results into the files of the cases.
async fn record(folder: &Path, run_folder: &Path) -> Result<bool> {
    match Kind::of(folder)? {
        Kind::Nodes => {
            let cases = case::load(folder)?;
            let outcomes = run(Subject::Incumbent, &cases, run_folder).await?;
            let recorded = cases.into_iter().map(|case| (case.name, case.recorded));
            write(folder, recorded, &outcomes)?;
        }
        Kind::Services => {
            let cases = services::case::load(folder)?;
            let ran = services::run(Subject::Incumbent, &cases, run_folder).await?;
            let recorded = cases.into_iter().map(|case| (case.name, case.recorded));
            write(folder, recorded, &ran.outcomes)?;
            ran.all()?;
        }
    }

    Ok(true)
}

fn write<O: PartialEq + Serialize>(
    folder: &Path,
    recorded: impl Iterator<Item = (String, Option<O>)>,
    outcomes: &BTreeMap<String, O>,
) -> Result<()> {
    let mut changed = 0;
    for (name, recorded) in recorded {
        if let Some(outcome) = outcomes.get(&name) {
            changed += usize::from(recorded.as_ref() != Some(outcome));
            case::record(folder, &name, outcome)?;
        }
    }

    let cases = outcomes.len();
    say(&format!(
        "{cases} cases recorded, {changed} of them changed; read the diff"
    ))
}

/// Runs our manager on recorded cases. Of Services, `outcomes.json` of the run's folder contains the results, and
/// `differs.jsonl` the entries that `differs` of the cases would need.
async fn problems(folder: &Path, run_folder: &Path) -> Result<Problems> {
    let topics = page::topics()?;
    let mut problems = Problems::new();
    match Kind::of(folder)? {
        Kind::Nodes => {
            let cases = case::load(folder)?;
            let outcomes = run(Subject::Ours, &cases, run_folder).await?;
            for case in cases {
                let found = compare::problems(&case, &outcomes[&case.name], &topics);
                problems.insert(case.name, found);
            }
        }
        Kind::Services => {
            let cases = services::case::load(folder)?;
            let outcomes = services::run(Subject::Ours, &cases, run_folder).await?.all()?;
            std::fs::write(run_folder.join("outcomes.json"), serde_json::to_string(&outcomes)?)?;

            let mut rows = std::fs::File::create(run_folder.join("differs.jsonl"))?;
            for case in cases {
                let found = services::compare::problems(&case, &outcomes[&case.name], &topics);
                for problem in found.iter().filter(|problem| !problem.step.is_empty()) {
                    let (step, field, ours) = (&problem.step, &problem.field, &problem.ours);
                    let row = json!({"case": case.name, "step": step, "field": field, "ours": ours});
                    writeln!(rows, "{row}")?;
                }
                problems.insert(case.name, found.iter().map(ToString::to_string).collect());
            }
        }
    }

    Ok(problems)
}

/// Runs our manager on drawn cases, or reads its results from `ours`.
async fn problems_of_drawn(folder: &Path, ours: Option<&Path>, run_folder: &Path) -> Result<Problems> {
    let cases = services::case::load(folder)?;
    let known = page::topics()?;
    if let Some(topic) = services::judge::topics().find(|topic| !known.contains(*topic)) {
        bail!("docs/parity.md has no row {topic:?}");
    }

    let outcomes: BTreeMap<String, Vec<services::Outcome>> = match ours {
        Some(file) => serde_json::from_str(&std::fs::read_to_string(file)?)?,
        None => services::run(Subject::Ours, &cases, run_folder).await?.all()?,
    };
    std::fs::write(run_folder.join("ours.json"), serde_json::to_string(&outcomes)?)?;

    let mut problems = Problems::new();
    for case in cases {
        let ours = outcomes.get(&case.name).context("a case without an outcome")?;
        let found = services::judge::problems(&case, ours);
        problems.insert(case.name, found.iter().map(ToString::to_string).collect());
    }

    Ok(problems)
}

/// Whether there are none.
fn print(problems: &Problems) -> Result<bool> {
    for (case, problems) in problems {
        for problem in problems {
            say(&format!("{case}: {problem}"))?;
        }
    }

    let good = problems.values().filter(|problems| problems.is_empty()).count();
    let all = problems.len();
    say(&format!("{good} of {all} cases are equal, or differ as they say"))?;

    Ok(good == all)
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
