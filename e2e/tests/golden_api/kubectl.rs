//! kubectl, as a user runs it: with nothing but a kubeconfig and a home.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::{Value, json};

pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

/// What it did.
pub struct Done {
    pub success: bool,
    /// The warnings that it showed, without its own word before them.
    pub warnings: Vec<String>,
    /// Everything it said, for messages.
    pub said: String,
}

impl Kubectl {
    pub async fn new(kubeconfig: PathBuf, home: PathBuf) -> Result<Self> {
        let tools = Tools::load(&[Tool::Kubectl]).await?;
        std::fs::create_dir_all(&home)?;
        Ok(Self {
            program: tools.path(Tool::Kubectl)?.to_owned(),
            kubeconfig,
            home,
        })
    }

    /// `kubectl apply` of some objects, from one file.
    pub async fn apply(&self, file: &str, objects: &[Value], more: &[&str]) -> Result<Done> {
        let path = self.home.join(format!("{file}.json"));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&path, list.to_string())?;
        self.run(&path, more).await
    }

    async fn run(&self, file: &Path, more: &[&str]) -> Result<Done> {
        let output = tokio::process::Command::new(&self.program)
            .arg("apply")
            .args(more)
            .arg("-f")
            .arg(file)
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("running kubectl")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let warnings = errors.lines().filter_map(|line| line.strip_prefix("Warning: "));
        Ok(Done {
            success: output.status.success(),
            warnings: warnings.map(str::to_owned).collect(),
            said: format!("{}{errors}", String::from_utf8_lossy(&output.stdout)),
        })
    }
}
