//! The folder with the files that a user of the cluster needs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_machines::Fleet;
use serde_json::Value;

/// Locked while the program runs. The kernel releases the lock when the process ends.
const LOCK: &str = "lock";

/// The folder, which is removed when it is dropped.
#[derive(Debug)]
pub struct Output {
    folder: PathBuf,
    _lock: File,
}

impl Output {
    /// Creates the folder, or replaces that of a killed program.
    ///
    /// # Errors
    /// When another program uses it, or a file cannot be removed.
    pub fn new(folder: &Path) -> Result<Self> {
        let path = folder.display();
        fs::create_dir_all(folder).with_context(|| path.to_string())?;
        let lock = File::options().create(true).append(true).open(folder.join(LOCK))?;
        if lock.try_lock().is_err() {
            bail!("{path} is in use: a cluster of this clone runs already; press Ctrl-C in its terminal first");
        }

        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_name() != LOCK {
                remove(&entry.path())?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    /// Writes `bin` with kubectl and helm, `kubeconfig`, and `values.yaml` for the chart. `logs` is the folder of the run.
    pub(super) async fn write(&self, fleet: &Fleet, kubeconfig: &Value, values: &Value) -> Result<()> {
        let wanted = [(Tool::Kubectl, "kubectl"), (Tool::Helm, "helm")];
        let tools = Tools::load(&wanted.map(|(tool, _)| tool)).await?;
        let bin = self.folder.join("bin");
        fs::create_dir(&bin)?;
        for (tool, name) in wanted {
            symlink(tools.path(tool)?, bin.join(name))?;
        }

        symlink(fleet.folder(), self.folder.join("logs"))?;
        // YAML contains JSON.
        fs::write(self.folder.join("kubeconfig"), kubeconfig.to_string())?;
        fs::write(self.folder.join("values.yaml"), format!("{values:#}\n"))?;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            eprintln!("{error:#}");
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| path.display().to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    #[test]
    fn a_folder_in_use_is_refused_and_that_of_a_killed_program_replaced() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("nodes");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("kubeconfig"), "old").expect("written");

        let output = Output::new(&folder).expect("a folder");
        assert!(!folder.join("kubeconfig").exists(), "the old file stays");
        let refused = Output::new(&folder).expect_err("refused").to_string();
        assert!(refused.contains("press Ctrl-C"), "{refused}");

        drop(output);
        assert!(!folder.exists(), "the folder stays");
    }
}
