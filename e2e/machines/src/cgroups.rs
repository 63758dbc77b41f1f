//! The cgroups of a run: the same path below every hierarchy of cgroup v1. Each process of a machine, containers
//! included, is below it in the hierarchy [`TRACKING`], so none can hide.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROOT: &str = "/sys/fs/cgroup";
/// Its processes have no limits.
const TRACKING: &str = "systemd";
/// A killed process ends when it gets processor time: at idle priority that can take long.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// The file that a process writes 0 into to enter the cgroup `path`.
pub(crate) fn entrance(path: &str) -> PathBuf {
    Path::new(ROOT).join(TRACKING).join(path).join("cgroup.procs")
}

/// Creates the cgroup `path` and its parents in every hierarchy.
pub(crate) fn create(path: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut folder = hierarchy.clone();
        for part in Path::new(path) {
            let parent = folder.clone();
            folder.push(part);
            fs::create_dir_all(&folder).with_context(|| format!("cgroup {}", folder.display()))?;
            // Without values no process may enter.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = fs::read(parent.join(file)) {
                    fs::write(folder.join(file), value).with_context(|| format!("{}/{file}", folder.display()))?;
                }
            }
        }
    }
    Ok(())
}

/// The processes in the cgroup `path` and below it, in any hierarchy.
///
/// # Errors
/// When the hierarchies cannot be listed.
pub fn processes(path: &str) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for hierarchy in hierarchies()? {
        for folder in folders(&hierarchy.join(path)) {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
    }
    // 0 stands for a process of a PID namespace that is not visible here.
    found.remove(&0);
    Ok(found)
}

/// Sends a signal to the processes in the cgroup `path` and below it.
pub(crate) fn signal(path: &str, signal: Signal) -> Result<()> {
    for process in processes(path)? {
        match kill(Pid::from_raw(process), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => bail!("{signal} to process {process}: {error}"),
        }
    }
    Ok(())
}

/// Kills the processes and removes the cgroups.
pub(crate) fn remove(path: &str) -> Result<()> {
    until(&format!("processes below cgroup {path} still run"), || {
        signal(path, Signal::SIGKILL)?;
        Ok(processes(path)?.is_empty())
    })?;
    until(&format!("cgroup {path} is still there"), || {
        let mut all = true;
        for hierarchy in hierarchies()? {
            for folder in folders(&hierarchy.join(path)) {
                all &= match fs::remove_dir(&folder) {
                    Ok(()) => true,
                    Err(error) => error.kind() == ErrorKind::NotFound,
                };
            }
        }
        Ok(all)
    })
}

/// Repeats `done` until it is true.
pub(crate) fn until(missing: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        if begun.elapsed() > LIMIT {
            bail!("{missing} after {LIMIT:?}");
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(ROOT).context(ROOT)?;
    // Links are second names, for example `cpu` of `cpu,cpuacct`.
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path());
    Ok(folders.filter(|folder| folder.join("cgroup.procs").is_file()).collect())
}

/// A folder and the folders below it, children first.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let children = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = children.flat_map(|entry| folders(&entry.path())).collect();
    found.push(folder.to_owned());
    found
}
