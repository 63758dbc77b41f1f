//! The door: crypto provider, command line, logs, run.

use anyhow::{Context, Result};
use clap::Parser;
use outrigger_webhook::args::Args;
use outrigger_webhook::run;
use tracing_subscriber::EnvFilter;

fn main() -> Result<()> {
    // Clients take the process's default; the servers are given theirs.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).with_context(|| format!("--log={:?} is no filter", args.log))?;
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run::run(args))
}
