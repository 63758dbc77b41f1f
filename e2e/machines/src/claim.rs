//! Which runs exist: a locked file for each, so that the remains of a killed run can be told from a run that goes on.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cgroups;

/// One file for each run, with the path of its folder. The kernel releases the lock when the process ends.
pub(crate) const CLAIMS: &str = "/run/outrigger-machines";

#[derive(Debug)]
pub(crate) struct Claim {
    /// Also the name of its cgroup.
    pub(crate) name: String,
    file: PathBuf,
    _lock: File,
}

impl Claim {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let name = folder.file_name().context("a folder without a name")?;
        let name = name.to_string_lossy().into_owned();
        fs::create_dir_all(CLAIMS).context(CLAIMS)?;

        // It gets its name when it is locked: before, another run would take it for one without an owner.
        let file = Path::new(CLAIMS).join(&name);
        let early = Path::new(CLAIMS).join(format!(".{name}"));
        let mut lock = File::create(&early).with_context(|| early.display().to_string())?;
        lock.try_lock().context("a new file is locked")?;
        lock.write_all(folder.as_os_str().as_encoded_bytes())?;
        fs::rename(&early, &file)?;

        Ok(Self {
            name,
            file,
            _lock: lock,
        })
    }

    /// Ends the run's processes and removes its cgroups.
    pub(crate) fn release(&self) -> Result<()> {
        cgroups::remove(&self.name)?;
        fs::remove_file(&self.file).with_context(|| self.file.display().to_string())
    }
}

/// Ends and removes the remains of runs whose process was killed, and returns their names.
///
/// Their mounts and networks are in namespaces, which end with their processes.
///
/// # Errors
/// When a process cannot be killed, or a cgroup or folder cannot be removed.
pub fn remove_leftovers() -> Result<Vec<String>> {
    let entries = match fs::read_dir(CLAIMS) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context(CLAIMS)?,
    };

    let mut removed = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && remove_leftover(&entry.path(), &name)? {
            removed.push(name);
        }
    }
    Ok(removed)
}

fn remove_leftover(path: &Path, name: &str) -> Result<bool> {
    let Ok(mut file) = File::open(path) else {
        return Ok(false); // its run ended just now
    };
    if file.try_lock().is_err() {
        return Ok(false);
    }

    cgroups::remove(name)?;
    let mut folder = String::new();
    file.read_to_string(&mut folder)?;
    for leftover in [Path::new(&folder), path] {
        let removed = if leftover.is_dir() {
            fs::remove_dir_all(leftover)
        } else {
            fs::remove_file(leftover)
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| leftover.display().to_string());
            }
            _ => {}
        }
    }
    Ok(true)
}
