//! kubectl, as a user runs it: with nothing but a kubeconfig and a home.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result};
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::{Value, json};

pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

/// The result of a call.
pub struct Done {
    pub success: bool,
    /// The objects, each as it was after its own write.
    pub objects: Vec<Value>,
    /// The warnings that it showed, without its own word before them.
    pub warnings: Vec<String>,
    /// Its stderr.
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

    /// `kubectl apply` of some objects in their order, from one file. One may stand there twice.
    pub async fn apply(&self, file: &str, objects: &[Value], more: &[&str]) -> Result<Done> {
        let path = self.home.join(format!("{file}.json"));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&path, list.to_string())?;

        let output = tokio::process::Command::new(&self.program)
            .args(["apply", "--output=json", "--show-managed-fields"])
            .args(more)
            .arg("-f")
            .arg(&path)
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
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(Done {
            success: output.status.success(),
            objects: match printed["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![printed],
            },
            warnings: warnings.map(str::to_owned).collect(),
            said: errors,
        })
    }
}
