//! `outrigger-bench`: what `make bench` runs.

mod course;
mod manager;
mod services;
mod webhook;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use outrigger_e2e::bench::report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((what, options)) if what == "webhook" => webhook::run(options),
        Some((what, options)) if what == "manager" => manager::run(options),
        Some((what, options)) if what == "services" => services::run(options),
        _ => usage(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> Result<bool> {
    bail!(
        "usage: {}\n       {}\n       {}",
        webhook::USAGE,
        manager::USAGE,
        services::USAGE
    )
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "outrigger-bench: {text}");
}

/// A program of this workspace, beside this one.
fn own_program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} is not built; run `make bench`", path.display());
    Ok(path)
}

/// Puts a table into its section of a document.
fn write(file: &Path, section: &str, table: &str) -> Result<()> {
    let name = || file.display().to_string();
    let document = std::fs::read_to_string(file).with_context(name)?;
    let document = report::replace_section(&document, section, table).with_context(name)?;
    std::fs::write(file, document).with_context(name)
}
