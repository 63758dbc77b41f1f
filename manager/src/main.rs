//! The manager's binary.

use std::io::Write;
use std::process::ExitCode;

use outrigger_manager::args::{self, Request};
use outrigger_manager::{logs, run};

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return fail("another TLS crypto provider is already installed");
    }

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match args::parse(&arguments) {
        Ok(Request::Print(text)) => return print(&text),
        Ok(Request::Run(options)) => *options,
        Err(error) => return fail(&error.to_string()),
    };
    let json = options.logs.json;
    let verbosity = logs::start(options.logs);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start the asynchronous runtime: {error}")),
    };
    let ended = runtime.block_on(run::run(options, verbosity));
    // A lost lease must not wait for whatever is still in flight: its permit is void already.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // A machine that reads the log gets one line; a person gets the text with its line breaks.
        Err(error) if json => {
            tracing::error!(error = format!("{error:#}"), "ending");
            ExitCode::FAILURE
        }
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "outrigger-manager: {message}");
    ExitCode::FAILURE
}
