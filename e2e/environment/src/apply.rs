//! `outrigger apply`, as an operator runs it: it writes the phase, and waits for the steps of a person.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::{Binaries, CLUSTER, Environment, Progress};
use outrigger_cluster_harness::cluster::User;

/// A running `outrigger apply`. Dropping it ends the program.
#[derive(Debug)]
pub struct Apply {
    child: Child,
    output: [JoinHandle<Result<()>>; 2],
}

/// How long the program waits for the steps of a person.
const WAIT: &str = "--wait=600";
/// The webhook runs beside the cluster, as no Pod of it.
const NO_PODS: &str = "--accept=OUT211";

impl Environment {
    /// Starts `outrigger apply`, and waits until it has written the phase, which is marked.
    ///
    /// # Errors
    /// When the program is not built, or the phase is not written within a minute.
    pub async fn begin_phase(&self, phase: &str, progress: &Progress) -> Result<Apply> {
        let arguments = ["apply", CLUSTER, "--yes", WAIT, NO_PODS];
        progress.line(&format!("$ outrigger {}", arguments.join(" ")));
        let mut child = Command::new(Binaries::one("outrigger")?)
            .args(arguments)
            .env("KUBECONFIG", self.management.kubeconfig(&User::admin())?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = child.stdout.take().context("stdout")?;
        let err = child.stderr.take().context("stderr")?;
        let output = [shown(out, progress), shown(err, progress)];

        let written = async || {
            let found = self.migrations().get(CLUSTER).await?.spec.phase;
            Ok(if found.as_str() == phase {
                Ok(())
            } else {
                Err(format!("it is {found}"))
            })
        };
        let what = format!("`outrigger apply` has written phase {phase}");
        progress.wait(&what, Duration::from_secs(60), written).await?;
        self.mark(&format!("phase {phase}"));

        Ok(Apply { child, output })
    }
}

impl Apply {
    /// Waits until it says that the phase is reached.
    ///
    /// # Errors
    /// When it does not end with 0 within two minutes.
    pub async fn ends(mut self) -> Result<()> {
        let status = tokio::time::timeout(Duration::from_secs(120), self.child.wait()).await;
        let status = status.context("outrigger apply does not end")??;
        for output in self.output {
            output.await??;
        }
        ensure!(status.success(), "outrigger apply: {status}");
        Ok(())
    }
}

/// Prints the lines of a stream as they come.
fn shown(stream: impl AsyncRead + Send + Unpin + 'static, progress: &Progress) -> JoinHandle<Result<()>> {
    let progress = progress.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await? {
            progress.line(&format!("    {line}"));
        }
        Ok(())
    })
}
