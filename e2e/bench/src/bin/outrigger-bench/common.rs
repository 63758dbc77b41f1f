//! Shared by the benches: programs, folder, output.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use outrigger_bench::manager::candidate::{Candidate, Programs};
use outrigger_bench::manager::scenarios::Bench;
use outrigger_bench::report;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};

/// Used by no test, so that a bench and tests can run at the same time.
pub(super) const RANGE: &str = "127.98.0.0/16";

/// A report, and whether it is a result.
pub(super) struct Outcome {
    pub table: String,
    pub passed: bool,
}

#[derive(Default)]
pub(super) struct Output {
    /// `--keep`: the logs stay after success too.
    pub logs: bool,
    /// `--write`: the page for the report.
    pub page: Option<PathBuf>,
}

/// Measures in a new folder and prints; whether it is a result.
pub(super) fn run(section: &str, output: &Output, measure: impl AsyncFnOnce(&Path) -> Result<Outcome>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = RunFolder::new("outrigger-bench-")?;
    let measured = runtime.block_on(measure(folder.path()));
    let Outcome { table, passed } = measured.with_context(|| format!("logs: {}", folder.keep().display()))?;
    write!(std::io::stdout(), "{table}")?;
    if !passed || output.logs {
        say(&format!("logs: {}", folder.keep().display()));
    }

    if let Some(page) = output.page.as_ref().filter(|_| passed) {
        let name = || page.display().to_string();
        let text = std::fs::read_to_string(page).with_context(name)?;
        let text = report::replace_section(&text, section, &table).with_context(name)?;
        std::fs::write(page, text).with_context(name)?;
    }

    Ok(passed)
}

/// The components and programs of a bench of managers.
pub(super) async fn tools() -> Result<Tools> {
    let needed = [
        Tool::Etcd,
        Tool::ApiServer136,
        Tool::MotoPython,
        Tool::AwsCloudControllerManager,
    ];
    Ok(Tools::load(&needed).await?)
}

pub(super) fn bench<'a>(tools: &'a Tools, folder: &'a Path) -> Result<Bench<'a>> {
    bench_of(tools, folder, own_program("outrigger-manager")?)
}

pub(super) fn bench_of<'a>(tools: &'a Tools, folder: &'a Path, manager: PathBuf) -> Result<Bench<'a>> {
    Ok(Bench {
        tools,
        folder,
        range: RANGE,
        programs: Programs {
            ours: manager,
            incumbent: tools.path(Tool::AwsCloudControllerManager)?.to_owned(),
        },
        progress: &say,
    })
}

pub(super) fn candidates(list: &str) -> Result<Vec<Candidate>> {
    let candidate = |name| match name {
        "outrigger" => Ok(Candidate::Outrigger),
        "incumbent" => Ok(Candidate::Incumbent),
        "tuned" => Ok(Candidate::Tuned),
        _ => bail!("--by: {name:?} is none of outrigger, incumbent, tuned"),
    };
    list.split(',').map(candidate).collect()
}

pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "outrigger-bench: {text}");
}

/// A program of this workspace, beside this one.
pub(super) fn own_program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} is not built; run `make bench`", path.display());
    Ok(path)
}
