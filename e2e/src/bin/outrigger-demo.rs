//! `outrigger-demo migrate [--keep]` and `outrigger-demo incumbent`: what `make demo` runs.
//!
//! `OUTRIGGER_BESIDE_OTHER_WORK=1` judges with the limits for a machine that does other work at the same time.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use outrigger_cluster_harness::command;
use outrigger_environment::Progress;
use outrigger_environment::demo;
use outrigger_timeline::{Limits, Report};

const BUSY: &str = "OUTRIGGER_BESIDE_OTHER_WORK";
const USAGE: &str = "usage: outrigger-demo migrate [--keep] | incumbent";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = command::begin();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["migrate"] => Box::pin(migrate(false)).await,
        ["migrate", "--keep"] => Box::pin(migrate(true)).await,
        ["incumbent"] => incumbent().await,
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };

    command::end("outrigger-demo", done)
}

async fn migrate(keep: bool) -> Result<bool> {
    let progress = Progress::loud();
    let run = run_folder("demo")?;
    let outcome = demo::migrate(&run, &progress).await;
    let mut outcome = outcome.with_context(|| format!("the migration did not come about; logs: {}", run.display()))?;
    if std::env::var_os(BUSY).is_some() {
        outcome.report = outcome.report.within(Limits::default().beside_other_work());
    }
    let passed = judge(&progress, &outcome.report);
    progress.line(&format!(
        "the timeline as a page: {}",
        write_page(&outcome.report)?.display()
    ));

    if keep {
        progress.line(&outcome.environment.how_to_look()?);
        progress.line("It runs until you press Ctrl-C.");
        tokio::signal::ctrl_c().await?;
    }

    progress.line(&outcome.report.proof_line());
    outcome.environment.end(Duration::from_secs(10)).await;
    if passed && !keep {
        // A failed run keeps its logs.
        std::fs::remove_dir_all(&run).with_context(|| run.display().to_string())?;
    }

    Ok(passed)
}

/// Writes the timeline below the folder in which the program runs.
fn write_page(report: &Report) -> Result<PathBuf> {
    let folder = PathBuf::from("target/demo");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    std::fs::write(folder.join("timeline.svg"), report.svg())?;
    let page = folder.join("report.html");
    std::fs::write(&page, report.page("A migration by make demo"))?;

    Ok(page)
}

fn judge(progress: &Progress, report: &Report) -> bool {
    progress.step("The timeline");
    progress.line(&report.table());

    let verdict = report.verdict();
    if verdict.passed() {
        progress.line("verdict: passed");
    } else {
        let mut counts = std::collections::BTreeMap::<&str, usize>::new();
        for reason in &verdict.reasons {
            *counts.entry(reason).or_default() += 1;
        }

        for (reason, count) in counts {
            let times = if count > 1 {
                format!(" ({count} times)")
            } else {
                String::new()
            };
            progress.line(&format!("verdict: FAILED: {reason}{times}"));
        }
    }

    verdict.passed()
}

/// Both runs end with 0 whatever the timeline says: they show what is, they do not judge it.
async fn incumbent() -> Result<bool> {
    let progress = Progress::loud();
    for own_names in [false, true] {
        let run = run_folder("incumbent")?;
        let report = demo::incumbent(&run, own_names, &progress)
            .await
            .with_context(|| format!("logs: {}", run.display()))?;
        judge(&progress, &report);
        progress.line(&report.proof_line());
        std::fs::remove_dir_all(&run).with_context(|| run.display().to_string())?;
    }

    Ok(true)
}

fn run_folder(name: &str) -> Result<PathBuf> {
    Ok(tempfile::Builder::new()
        .prefix(&format!("outrigger-{name}-"))
        .tempdir()?
        .keep())
}
