//! Sets up the crypto provider, the command line and the logs, then runs the webhook.

use anyhow::{Context, Result};
use clap::Parser;
use outrigger_shared::log_limits;
use outrigger_webhook::args::Args;
use outrigger_webhook::run;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

fn main() -> Result<()> {
    // Clients take the process's default; the servers are given theirs.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();

    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).with_context(|| format!("--log={:?} is not a log filter", args.log))?;
    let limits = Targets::new()
        .with_default(LevelFilter::DEBUG)
        .with_target(log_limits::OWN, LevelFilter::TRACE)
        .with_targets(log_limits::CONNECTIONS.map(|target| (target, LevelFilter::INFO)))
        .with_targets(log_limits::SILENT.map(|target| (target, LevelFilter::OFF)))
        // It logs a body that it cannot parse, at warn, and the webhook reads a Secret.
        .with_target("kube_client", LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);

    tracing_subscriber::registry()
        .with(filter)
        .with(limits)
        .with(lines)
        .init();

    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run::run(args))
}
