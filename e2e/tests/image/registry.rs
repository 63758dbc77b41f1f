//! Push and pull with crane, and a registry of go-containerregistry.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use outrigger_cluster_harness::process::{Launch, Process};
use tokio::process::Command;

use super::{Image, dynamic_program, stand_ins, static_program};

const LIMIT: Duration = Duration::from_secs(60);

/// A registry on a free port of loopback.
struct Registry {
    crane: PathBuf,
    address: String,
    _process: Process,
}

impl Registry {
    async fn start(crane: &Path, folder: &Path) -> Result<Self> {
        let launch = Launch::new("registry", crane).arguments(["registry", "serve", "--address=127.0.0.1:0"]);
        let process = Process::start(&launch, folder)?;
        // `2026/01/01 00:00:00 serving on port 45678`
        let port = || {
            let log = process.log_tail();
            let port = log.split_once("serving on port ")?.1.lines().next()?.to_owned();
            log.ends_with(&port).then_some(port)
        };
        process
            .ready("port", LIMIT, async || port().map(drop).ok_or_else(String::new))
            .await?;

        Ok(Self {
            crane: crane.to_owned(),
            address: format!("127.0.0.1:{}", port().unwrap_or_default()),
            _process: process,
        })
    }

    async fn crane(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.crane);
        let output = command.args(arguments).stdin(Stdio::null()).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "crane {}: {errors}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

#[tokio::test]
async fn the_digest_and_the_files_survive_a_push_and_a_pull() -> Result<()> {
    let crane = static_program().await;
    let programs = stand_ins(&dynamic_program());
    let image = Image::build(programs.path(), &[]);
    let run = tempfile::tempdir()?;
    let registry = Registry::start(&crane, run.path()).await?;
    let name = format!("{}/outrigger:0.1.0", registry.address);
    let layout = image.path("oci");
    let pulled = run.path().join("pulled");

    let pushed = registry.crane(&["push", &layout.display().to_string(), &name]).await?;
    let digest = registry.crane(&["digest", &name]).await?;
    registry
        .crane(&["pull", "--format=oci", &name, &pulled.display().to_string()])
        .await?;

    assert!(pushed.ends_with(&image.digest), "{pushed}, not {}", image.digest);
    assert_eq!(digest, image.digest);
    registry.crane(&["validate", "--remote", &name]).await?;
    for blob in std::fs::read_dir(layout.join("blobs/sha256"))? {
        let blob = blob?;
        let copy = pulled.join("blobs/sha256").join(blob.file_name());
        ensure!(
            std::fs::read(blob.path())? == std::fs::read(&copy)?,
            "{} differs",
            copy.display()
        );
    }

    Ok(())
}
