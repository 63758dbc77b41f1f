//! Runs a test or a program with machines. A test is left out where the host cannot run them.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use outrigger_cluster_harness::repository;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Fleet, network};

/// If it is set, a host that cannot run machines is a failure.
pub const REQUIRE: &str = "OUTRIGGER_REQUIRE_KUBELETS";
/// The file that lists the tests that were left out, with the reason. `make test` prints it.
pub const LEFT_OUT: &str = "OUTRIGGER_LEFT_OUT";

/// Runs `test` with `machines` machines, in a network of its own, and ends and removes them whatever its result is.
/// The machines run containerd; [`Fleet::join`] and [`Fleet::create_control_planes`] start kubelets.
///
/// Without root, cgroup v1 or the packages the test is left out.
///
/// # Errors
/// The error of the test, or of the start of its machines.
pub fn real_kubelets(machines: u8, test: impl AsyncFnOnce(&mut Fleet) -> Result<()> + Send + 'static) -> Result<()> {
    if left_out()? {
        return Ok(());
    }
    in_own_network(async move || with_fleet(machines, test).await)
}

/// As [`real_kubelets`], for a program: SIGINT, SIGTERM and SIGHUP end `run` at any time, which is no error.
///
/// # Errors
/// The reason why this host cannot run machines, the error of `run`, or of the start of its machines.
pub fn until_signal(machines: u8, run: impl AsyncFnOnce(&mut Fleet) -> Result<()> + Send + 'static) -> Result<()> {
    if let Some(reason) = impossible()? {
        bail!(reason);
    }
    in_own_network(async move || {
        let [mut interrupt, mut terminate, mut hangup] = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        // The future that is dropped owns the machines.
        tokio::select! {
            result = with_fleet(machines, run) => result,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = hangup.recv() => Ok(()),
        }
    })
}

/// Runs `run` on a new thread, because a thread that enters a network stays there.
fn in_own_network(run: impl AsyncFnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    // libtest gives the thread of a test its name.
    let name = thread::current().name().unwrap_or("?").to_owned();
    let thread = thread::Builder::new().name(name).spawn(move || {
        network::enter()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(run())
    });
    match thread?.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn with_fleet(machines: u8, test: impl AsyncFnOnce(&mut Fleet) -> Result<()>) -> Result<()> {
    let mut fleet = Fleet::new().await?;
    let result = async {
        fleet.start(machines).await?;
        test(&mut fleet).await
    };
    let result = result.await;
    let result = result.with_context(|| format!("logs: {}", fleet.folder().display()));
    if result.is_err() {
        fleet.folder.keep();
    }
    fleet.end().and(result)
}

/// Whether the calling test is left out, because this host cannot run machines. It is then listed with the reason.
///
/// # Errors
/// When no test may be left out ([`REQUIRE`]).
pub fn left_out() -> Result<bool> {
    let Some(reason) = impossible()? else {
        return Ok(false);
    };
    if std::env::var_os(REQUIRE).is_some_and(|value| !value.is_empty()) {
        bail!("{reason}, and {REQUIRE} is set");
    }

    let program = std::env::current_exe()?;
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // cargo appends a hash to the name of a test program.
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    let line = format!("{program}::{}\t{reason}\n", thread::current().name().unwrap_or("?"));
    if let Some(file) = std::env::var_os(LEFT_OUT) {
        let mut file = File::options().create(true).append(true).open(file)?;
        file.write_all(line.as_bytes())?;
    }
    Ok(true)
}

/// The reason why this host cannot run machines.
fn impossible() -> Result<Option<String>> {
    let script = repository::root().join("e2e/tools/kubelets-possible");
    let output = Command::new(&script)
        .output()
        .with_context(|| script.display().to_string())?;
    if output.status.success() {
        return Ok(None);
    }
    let reason = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        !reason.is_empty(),
        "{} gives no reason: {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(reason))
}
