//! `outrigger-bench`: what `make bench` runs.

mod common;
mod manager;
mod services;
mod webhook;

use std::process::ExitCode;

use anyhow::{Result, bail};

use self::common::say;

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
