//! Commands and files as a page has them, and a shell that runs them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::tools::{Tool, Tools};

const LIMIT: Duration = Duration::from_secs(180);

/// A section of a page of the project, from its heading to the next one of the same level.
pub struct Section(String);

impl Section {
    pub fn read(page: &str, heading: &str) -> Result<Self> {
        let text = std::fs::read_to_string(repository::root().join(page)).with_context(|| page.to_owned())?;
        let (_, rest) = text
            .split_once(&format!("\n## {heading}\n"))
            .with_context(|| format!("{page} has no section {heading}"))?;
        let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
        Ok(Self(section.to_owned()))
    }

    /// The commands of its console blocks.
    pub fn commands(&self) -> Vec<String> {
        let text = self.blocks("console").concat().replace("\\\n", " ");
        let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
        lines.map(str::to_owned).collect()
    }

    /// Its blocks in a language.
    pub fn blocks(&self, language: &str) -> Vec<String> {
        let fence = format!("```{language}\n");
        let blocks = self.0.split(&fence).skip(1);
        blocks
            .filter_map(|rest| rest.split_once("```").map(|(block, _)| block.to_owned()))
            .collect()
    }
}

/// A shell in a folder that has the project's `manifests` and `charts`, as after a clone.
pub struct Shell {
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Shell {
    pub async fn new(folder: PathBuf, kubeconfig: PathBuf) -> Result<Self> {
        let tools = Tools::load(&[Tool::Kubectl, Tool::Helm]).await?;
        let programs = folder.join("bin");
        std::fs::create_dir_all(&programs)?;
        symlink(tools.path(Tool::Kubectl)?, programs.join("kubectl"))?;
        symlink(tools.path(Tool::Helm)?, programs.join("helm"))?;
        for name in ["manifests", "charts"] {
            copy(&repository::root().join(name), &folder.join(name))?;
        }
        Ok(Self { folder, kubeconfig })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The standard output of a command that succeeds.
    pub async fn run(&self, command: &str) -> Result<String> {
        println!("$ {command}");
        let programs = self.folder.join("bin");
        let output = tokio::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", command])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", &self.folder)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, output)
            .await
            .with_context(|| format!("{command}: not done within {LIMIT:?}"))?
            .context("running bash")?;

        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the commands of a section in their order. Logs need a real kubelet, so these commands are left out.
    pub async fn follow(&self, section: &Section) -> Result<()> {
        let commands = section.commands();
        ensure!(!commands.is_empty(), "a section without commands");
        for command in commands.iter().filter(|command| !command.contains(" logs ")) {
            self.run(command).await?;
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
