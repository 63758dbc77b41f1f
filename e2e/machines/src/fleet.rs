//! The machines of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};

use crate::claim::{Claim, remove_leftovers};
use crate::command::output;
use crate::machine::{Machine, Programs};
use crate::network;

/// The image of each Pod's sandbox.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.9";
/// The image of the program that reads the API server's version from inside a Pod (`e2e/tools/kubelets/probe`).
const PROBE: &str = "outrigger.dev/probe:1";

/// The machines of a run, which are in one network. Dropping it ends and removes them.
#[derive(Debug)]
pub struct Fleet {
    // Dropped in this order: the machines end before the claim and the folder.
    machines: Vec<Machine>,
    claim: Option<Claim>,
    pub(crate) folder: RunFolder,
    tools: Tools,
    programs: Programs,
}

impl Fleet {
    /// No machine, in a network that the calling thread has entered.
    pub(crate) async fn new() -> Result<Self> {
        remove_leftovers().context("the remains of killed runs")?;
        let tools = Tools::load(&[
            Tool::Kubelet,
            Tool::Pause,
            Tool::Probe,
            Tool::Containerd,
            Tool::Etcd,
            Tool::ApiServer126,
            Tool::ControllerManager126,
        ])
        .await?;
        let containerd = tools.path(Tool::Containerd)?;
        let packages = containerd
            .ancestors()
            .nth(3)
            .context("the folder of containerd")?
            .to_owned();
        network::publish_loopback(&packages)?;

        let folder = RunFolder::new("outrigger-machines-")?;
        let claim = Claim::new(folder.path())?;
        let programs = Programs {
            packages,
            kubelet: tools.path(Tool::Kubelet)?.to_owned(),
        };
        Ok(Self {
            machines: Vec::new(),
            claim: Some(claim),
            folder,
            tools,
            programs,
        })
    }

    /// Starts `count` machines with containerd and the images that every test needs.
    pub(crate) async fn start(&mut self, count: u8) -> Result<()> {
        let claim = self.claim.as_ref().context("the fleet has ended")?;
        for number in 1..=count {
            let mut machine = Machine::new(number, count, self.folder.path(), &claim.name, self.programs.clone())?;
            machine.start().await?;
            self.machines.push(machine);
        }

        for (name, program) in [(PAUSE, Tool::Pause), (PROBE, Tool::Probe)] {
            self.import(name, program).await?;
        }
        Ok(())
    }

    /// The folder of the run, with the disks and the logs of the machines.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The name of the cgroup of all machines.
    pub fn cgroup(&self) -> &str {
        self.claim.as_ref().map_or("", |claim| &claim.name)
    }

    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// In the order of their numbers, which begin with 1.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    pub fn machines_mut(&mut self) -> &mut [Machine] {
        &mut self.machines
    }

    /// Writes the image `name` of a program and imports it into every machine.
    pub(crate) async fn import(&self, name: &str, program: Tool) -> Result<()> {
        let archive = self.folder.path().join("image.tar");
        write_image(name, self.tools.path(program)?, &archive)?;
        self.import_archive(&archive).await?;
        fs::remove_file(&archive).context("the archive of an image")
    }

    /// Imports an archive in the OCI image layout or of `docker save` into every machine.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub async fn import_archive(&self, archive: &Path) -> Result<()> {
        for machine in &self.machines {
            machine.import(archive).await?;
        }
        Ok(())
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        let machines = std::mem::take(&mut self.machines);
        let data: Vec<PathBuf> = machines.iter().map(|machine| machine.file("/var/lib")).collect();
        drop(machines);
        let Some(claim) = self.claim.take() else {
            return Ok(());
        };

        claim.release()?;
        // Images and etcd's data are large, and nobody reads them. The logs stay if the run folder is kept.
        data.iter()
            .try_for_each(|folder| fs::remove_dir_all(folder).with_context(|| folder.display().to_string()))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("machines are left behind: {error:#}");
        }
    }
}

/// Writes the image `name`, for example `registry.k8s.io/pause:3.9`, of a static program as an archive in the OCI image
/// layout. The program is the entry point.
fn write_image(name: &str, program: &Path, archive: &Path) -> Result<()> {
    let mut command = Command::new(repository::root().join("e2e/machines/image.py"));
    output(command.arg(name).arg(program).arg(archive)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::write_image;

    #[test]
    fn the_same_programs_give_the_same_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        std::fs::write(&program, "content").expect("written");

        let archives = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
        for archive in &archives {
            write_image("registry.k8s.io/program:1", &program, archive).expect("written");
        }
        let [a, b] = archives.map(|archive| std::fs::read(archive).expect("read"));
        assert_eq!(a, b);
        assert!(a.windows(7).any(|part| part == b"content"));
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("read").count(),
            3,
            "the layer's file is gone"
        );
    }
}
