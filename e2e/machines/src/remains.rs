//! For tests: what a run may not change or leave behind on the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cgroups::processes;
use crate::claim::CLAIMS;
use crate::machine::SYSCTLS;

/// Parts of the host that a run has to leave as they were. To be read outside of the network of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    sysctls: BTreeMap<&'static str, String>,
    ip_forward: String,
    links: Vec<String>,
    mounts: Vec<String>,
}

impl Host {
    /// As they are now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn now() -> Result<Self> {
        let links = Command::new("ip").args(["-brief", "link"]).output().context("ip")?;
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        // Other work on the host may create links and mounts of its own.
        let ours = |text: &str| {
            let ours = text.lines().filter(|line| line.contains("machine"));
            ours.map(str::to_owned).collect()
        };
        let sysctl = |name| Ok((name, read(&format!("/proc/sys/{name}"))?));
        Ok(Self {
            sysctls: SYSCTLS.into_iter().map(sysctl).collect::<Result<_>>()?,
            ip_forward: read("/proc/sys/net/ipv4/ip_forward")?,
            links: ours(&links),
            mounts: ours(&read("/proc/self/mounts")?),
        })
    }
}

/// A run with this cgroup and folder left no process, cgroup or file.
///
/// # Errors
/// When it did.
pub fn is_gone(cgroup: &str, folder: &Path) -> Result<()> {
    ensure!(!cgroup.is_empty(), "no name of a cgroup");
    ensure!(
        processes(cgroup)?.is_empty(),
        "processes are left below cgroup {cgroup}"
    );
    for hierarchy in fs::read_dir("/sys/fs/cgroup")?.flatten() {
        let left = hierarchy.path().join(cgroup);
        ensure!(!left.exists(), "{} is left", left.display());
    }
    ensure!(!folder.exists(), "{} is left", folder.display());
    let claim = Path::new(CLAIMS).join(cgroup);
    ensure!(!claim.exists(), "{} is left", claim.display());
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}
