//! The remains of a killed run are found and removed by the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outrigger_cluster_harness::wait::until;
use outrigger_machines::{Host, is_gone, processes_below_cgroup, real_kubelets, remove_leftovers};

use crate::support::SOON;

/// The file into which the run that is to be killed writes its cgroup and its folder.
const NAMES: &str = "OUTRIGGER_MACHINES_TEST_NAMES";

/// The other test runs it in a process of its own, and kills it.
#[test]
fn a_run_that_is_killed() -> Result<()> {
    let Some(file) = std::env::var_os(NAMES) else {
        return Ok(());
    };
    real_kubelets(1, async move |fleet| {
        let names = format!("{}\n{}", fleet.cgroup(), fleet.folder().display());
        fs::write(Path::new(&file).with_extension("new"), names)?;
        fs::rename(Path::new(&file).with_extension("new"), file)?;
        std::future::pending().await
    })
}

#[tokio::test]
async fn the_next_run_removes_the_remains_of_a_killed_one() -> Result<()> {
    let before = Host::now()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("names");
    let mut run = Command::new(std::env::current_exe()?);
    run.args(["--exact", "leftovers::a_run_that_is_killed"])
        .env(NAMES, &file);
    let mut run = run.stdout(Stdio::null()).spawn()?;

    let started = until(
        "a machine that runs, or a test that is left out",
        SOON * 2,
        async || file.exists() || run.try_wait().is_ok_and(|ended| ended.is_some()),
    );
    started.await?;
    if !file.exists() {
        let ended = run.wait()?;
        ensure!(ended.success(), "the run failed: {ended}");
        return Ok(());
    }

    let names = fs::read_to_string(&file)?;
    let (cgroup, home) = names.split_once('\n').context("two names")?;
    let home = PathBuf::from(home);
    ensure!(!processes_below_cgroup(cgroup)?.is_empty(), "the machine runs");
    ensure!(
        !remove_leftovers()?.contains(&cgroup.to_owned()),
        "a run that goes on was removed"
    );
    ensure!(!processes_below_cgroup(cgroup)?.is_empty(), "the machine still runs");

    // The guard first, so that it cannot clean up.
    for process in guards(run.id())? {
        kill(Pid::from_raw(process), Signal::SIGKILL)?;
    }
    run.kill()?;
    run.wait()?;
    ensure!(
        !processes_below_cgroup(cgroup)?.is_empty(),
        "the machine outlives its run"
    );

    let removed = remove_leftovers()?;
    ensure!(
        removed.contains(&cgroup.to_owned()),
        "{cgroup} is not among {removed:?}"
    );
    is_gone(cgroup, &home)?;
    ensure!(
        Host::now()? == before,
        "the host changed: {:?}, before: {before:?}",
        Host::now()?
    );
    Ok(())
}

/// The shells among the children of the run: one of them would end the machines.
fn guards(run: u32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{run}/task"))?.flatten() {
        let children = fs::read_to_string(thread.path().join("children"))?;
        for child in children.split_whitespace() {
            if fs::read_to_string(format!("/proc/{child}/comm"))?.trim() == "sh" {
                found.push(child.parse()?);
            }
        }
    }
    ensure!(!found.is_empty(), "run {run} has no guard");
    Ok(found)
}
