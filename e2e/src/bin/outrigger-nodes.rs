//! `outrigger-nodes --folder=FOLDER [--machines=N]`: what `make nodes` runs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use outrigger_cluster_harness::command;
use outrigger_e2e::test_nodes::{self, LOOPBACK, Output};
use outrigger_environment::Progress;

const USAGE: &str = "usage: outrigger-nodes --folder=FOLDER [--machines=N]";
/// More control planes at once take long on two cores.
const MOST: u8 = 3;

fn main() -> ExitCode {
    let arguments = command::begin();
    let done = parse(&arguments).and_then(|(folder, machines)| run(&folder, machines));
    command::end("outrigger-nodes", done.map(|()| true))
}

fn parse(arguments: &[String]) -> Result<(PathBuf, u8)> {
    let (mut folder, mut machines) = (None, 1);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("--folder", path)) if !path.is_empty() => folder = Some(PathBuf::from(path)),
            Some(("--machines", count)) => {
                let wanted = count.parse().ok().filter(|count| (1..=MOST).contains(count));
                machines = wanted.with_context(|| format!("--machines={count}: it has to be 1 to {MOST}"))?;
            }
            _ => bail!("{argument}: {USAGE}"),
        }
    }
    Ok((folder.context(USAGE)?, machines))
}

fn run(folder: &Path, machines: u8) -> Result<()> {
    let progress = Progress::loud();
    let output = Output::new(folder)?;
    // Before the thread that enters the network of the machines: the host's programs connect to it.
    let listener = TcpListener::bind(LOOPBACK).context("a free port on 127.0.0.1")?;
    let shown = progress.clone();
    outrigger_machines::until_signal(machines, async move |fleet| {
        test_nodes::run(fleet, &output, listener, &shown).await
    })?;
    progress.say("the machines, their data and the folder are removed");
    Ok(())
}
