//! Logs on stderr: text, or JSON with `--logging-format=json`. `RUST_LOG` wins over `--v`.

use tracing_subscriber::EnvFilter;

use crate::args::Logs;

/// Starts logging for the whole process. A second call does nothing.
pub fn start(options: Logs) {
    let default = match options.verbosity {
        0..=3 => "info,kube_runtime=error,kube_client=error",
        4..=5 => {
            "info,kube_runtime=error,outrigger=debug,outrigger_manager=debug,outrigger_leader=debug,outrigger_aws=debug"
        }
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // It only fails where a test has started logging before.
    let _ = if options.json {
        logs.json().try_init()
    } else {
        logs.with_ansi(false).try_init()
    };
}
