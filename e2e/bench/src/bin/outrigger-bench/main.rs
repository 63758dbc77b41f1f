//! `outrigger-bench`, the program of `make bench`.

mod builds;
mod common;
mod manager;
mod services;
mod webhook;

use std::process::ExitCode;

use anyhow::{Result, bail};
use outrigger_cluster_harness::command;

fn main() -> ExitCode {
    let arguments = command::begin();
    command::end("outrigger-bench", run(&arguments))
}

fn run(arguments: &[String]) -> Result<bool> {
    match arguments.split_first() {
        Some((what, options)) if what == "webhook" => webhook::run(options),
        Some((what, options)) if what == "manager" => manager::run(options),
        Some((what, options)) if what == "services" => services::run(options),
        Some((what, options)) if what == "builds" => builds::run(options),
        _ => bail!(
            "usage: {}\n       {}\n       {}\n       {}",
            webhook::USAGE,
            manager::USAGE,
            services::USAGE,
            builds::USAGE
        ),
    }
}
