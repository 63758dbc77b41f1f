//! `outrigger-prove`: what `make prove` runs.

use std::io::Write;
use std::process::ExitCode;

use outrigger_cluster_harness::command;
use outrigger_environment::Progress;
use outrigger_environment::prove::{self, Options};

#[tokio::main]
async fn main() -> ExitCode {
    let words = command::begin();
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "outrigger-prove: {error:#}");
            return ExitCode::from(2);
        }
    };

    command::end("outrigger-prove", prove::prove(&options, &Progress::loud()).await)
}
