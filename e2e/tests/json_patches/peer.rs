//! The program of one release, which answers line by line.

use std::process::Stdio;

use anyhow::{Context, Result};
use json_patch::PatchOperation;
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const RELEASES: [(&str, Tool); 3] = [
    ("Kubernetes 1.22", Tool::JsonPatch122),
    ("Kubernetes 1.26", Tool::JsonPatch126),
    ("Kubernetes 1.36", Tool::JsonPatch136),
];

pub struct Peer {
    pub name: &'static str,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

#[derive(Deserialize)]
struct Answer {
    sent: String,
    #[serde(default)]
    stored: String,
    #[serde(default)]
    error: String,
}

/// One for each release.
pub async fn all() -> Result<Vec<Peer>> {
    let tools = Tools::load(&RELEASES.map(|(_, tool)| tool)).await?;
    RELEASES
        .into_iter()
        .map(|(name, tool)| {
            let mut process = Command::new(tools.path(tool)?)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let input = process.stdin.take().context("no stdin")?;
            let output = process.stdout.take().context("no stdout")?;
            Ok(Peer {
                name,
                input,
                output: BufReader::new(output).lines(),
                _process: process,
            })
        })
        .collect()
}

impl Peer {
    /// The text in which the API server sends an object; none if it refuses the object itself.
    pub async fn sent(&mut self, object: &Value) -> Result<Option<String>> {
        let answer = self.ask(json!({ "object": object }).to_string()).await?;
        Ok(answer.error.is_empty().then_some(answer.sent))
    }

    /// The text of the stored object after a patch, as the webhook writes it, or why the API server refuses the write.
    pub async fn stored(&mut self, sent: &str, patch: &[PatchOperation]) -> Result<Result<String, String>> {
        let object: &RawValue = serde_json::from_str(sent.trim_end())?;
        let patch = serde_json::to_string(patch)?;
        let answer = self.ask(format!(r#"{{"object":{object},"patch":{patch}}}"#)).await?;
        if answer.error.is_empty() {
            return Ok(Ok(answer.stored));
        }
        Ok(Err(answer.error))
    }

    async fn ask(&mut self, line: String) -> Result<Answer> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = self.output.next_line().await?;
        let answer = answer.with_context(|| format!("{} ended at {line}", self.name))?;
        serde_json::from_str(&answer).with_context(|| answer.clone())
    }
}
