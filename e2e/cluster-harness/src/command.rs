//! Logging and exit codes of the programs that use this crate.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

/// Logs errors to stderr, or what `RUST_LOG` asks for, and returns the words of the command line.
#[must_use]
pub fn begin() -> Vec<String> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error,kube_client=off".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    std::env::args().skip(1).collect()
}

/// Success only for `Ok(true)`; an error is printed on stderr under the program's name.
pub fn end(program: &str, done: Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
