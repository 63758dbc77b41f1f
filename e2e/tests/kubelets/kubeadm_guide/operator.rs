//! The operator of the guide: runs lines as they are written, where kubectl works.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::InTreeCluster;

/// No command may take longer, whatever its own `--timeout` is.
const LIMIT: Duration = Duration::from_secs(900);

pub struct Operator {
    folder: PathBuf,
    kubeconfig: PathBuf,
    path: String,
}

impl Operator {
    /// Works in a new folder below `run`.
    pub async fn new(run: &Path, cluster: &InTreeCluster) -> Result<Self> {
        let wanted = [Tool::Kubectl, Tool::Helm];
        let tools = Tools::load(&wanted).await?;
        let mut path = "/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        for tool in wanted {
            let folder = tools.path(tool)?.parent().context("a tool in no folder")?;
            path = format!("{}:{path}", folder.display());
        }
        let folder = run.join("operator");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            path,
            kubeconfig: cluster.kubeconfig.clone(),
            folder,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a line in a shell, and returns what it printed.
    pub async fn run(&self, line: &str) -> Result<String> {
        say(&format!("$ {line}"));
        let mut command = tokio::process::Command::new("bash");
        command
            .args(["-c", line])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, command.output()).await;
        let output = output.with_context(|| format!("not within {LIMIT:?}: {line}"))??;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {}: {printed}{errors}", output.status);
        for text in errors.lines() {
            say(&format!("  {text}"));
        }
        Ok(printed)
    }

    /// Repeats a line until its output is as wanted.
    pub async fn run_until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let printed = async || match self.run(line).await {
            Ok(printed) if wanted(&printed) => Ok(Some(printed)),
            Ok(printed) => Err(printed),
            Err(error) => Err(format!("{error:#}")),
        };
        Ok(until(line, LIMIT, printed).await?)
    }
}

/// A line of the test's own log, with the time.
pub fn say(text: &str) {
    println!("{} {text}", Timestamp::now().strftime("%H:%M:%S"));
}
