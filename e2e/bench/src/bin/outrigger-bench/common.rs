//! What the benches of managers have in common: what they need, and what becomes of a table.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use outrigger_bench::manager::candidate::Programs;
use outrigger_bench::manager::cluster::Cluster;
use outrigger_bench::report;
use outrigger_cluster_harness::tools::{Tool, Tools};

/// What came of a bench.
pub(super) struct Outcome {
    pub table: String,
    /// Whether everything in it is a result.
    pub passed: bool,
}

/// What is done with the table and the logs.
#[derive(Default)]
pub(super) struct Keeping {
    /// The logs are kept in any case (`--keep`).
    pub logs: bool,
    /// The document that the table goes into (`--write`).
    pub document: Option<PathBuf>,
}

/// Measures in a folder of its own and prints; whether it is a result.
pub(super) fn run(
    section: &str,
    keeping: &Keeping,
    measure: impl AsyncFnOnce(&Path) -> Result<Outcome>,
) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("outrigger-bench-").tempdir()?;
    let Outcome { table, passed } = match runtime.block_on(measure(folder.path())) {
        Ok(outcome) => outcome,
        Err(error) => return Err(error.context(format!("logs: {}", folder.keep().display()))),
    };
    write!(std::io::stdout(), "{table}")?;
    if !passed || keeping.logs {
        say(&format!("logs: {}", folder.keep().display()));
    }

    if let Some(file) = keeping.document.as_ref().filter(|_| passed) {
        write(file, section, &table)?;
    }

    Ok(passed)
}

/// The real components.
pub(super) async fn tools() -> Result<Tools> {
    let [etcd, api_server] = Cluster::TOOLS;
    Ok(Tools::load(&[etcd, api_server, Tool::MotoPython, Tool::AwsCloudControllerManager]).await?)
}

/// The candidates.
pub(super) fn programs(tools: &Tools) -> Result<Programs> {
    Ok(Programs {
        ours: own_program("outrigger-manager")?,
        incumbent: tools.path(Tool::AwsCloudControllerManager)?.to_owned(),
    })
}

pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "outrigger-bench: {text}");
}

/// A program of this workspace, beside this one.
pub(super) fn own_program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} is not built; run `make bench`", path.display());
    Ok(path)
}

/// Puts a table into its section of a document.
pub(super) fn write(file: &Path, section: &str, table: &str) -> Result<()> {
    let name = || file.display().to_string();
    let document = std::fs::read_to_string(file).with_context(name)?;
    let document = report::replace_section(&document, section, table).with_context(name)?;
    std::fs::write(file, document).with_context(name)
}
