//! The machines of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};

use crate::claim::{Claim, remove_leftovers};
use crate::machine::{Machine, Programs};
use crate::{Image, network};

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
    folder: RunFolder,
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
            let mut machine = Machine::new(number, count, self.folder.path(), claim.name(), self.programs.clone())?;
            machine.start().await?;
            self.machines.push(machine);
        }

        for (image, tool) in [(PAUSE, Tool::Pause), (PROBE, Tool::Probe)] {
            let program = self.tools.path(tool)?.to_owned();
            self.import(&Image::new(image, program)).await?;
        }
        Ok(())
    }

    /// The folder of the run, with the disks and the logs of the machines.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The name of the cgroup of all machines.
    pub fn cgroup(&self) -> &str {
        self.claim.as_ref().map_or("", Claim::name)
    }

    /// The programs that the harness has built.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// In the order of their numbers, which begin with 1.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// In the order of their numbers, which begin with 1.
    pub fn machines_mut(&mut self) -> &mut [Machine] {
        &mut self.machines
    }

    /// Writes an image and imports it into every machine.
    ///
    /// # Errors
    /// When a program cannot be read, or containerd refuses the image.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let archive = self.folder.path().join("image.tar");
        image.write(&archive)?;
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

    /// Keeps the logs of the run.
    pub(crate) fn keep(&self) {
        self.folder.keep();
    }

    /// Ends and removes all machines.
    pub(crate) fn end(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        let machines = std::mem::take(&mut self.machines);
        let data: Vec<PathBuf> = machines.iter().map(Machine::data).collect();
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
