//! Outrigger's image on each machine.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::repository;
use outrigger_environment::Binaries;
use outrigger_machines::Fleet;
use tokio::process::Command;

const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// Builds the image of the programs of the tests, without their symbols, and imports it into each machine.
///
/// # Errors
/// When a program is not built, or `image/build` or containerd fails.
pub async fn import_image(fleet: &Fleet, name: &str) -> Result<()> {
    Binaries::find()?;
    let program = Binaries::one("outrigger")?;
    let programs = program.parent().context("a program in no folder")?;
    let output = fleet.folder().join("image");
    let build = Command::new(repository::root().join("image/build"))
        .arg(format!("--programs={ARCHITECTURE}={}", programs.display()))
        .arg(format!("--output={}", output.display()))
        .args(["--strip", "--name", name])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("python3 runs image/build")?;
    ensure!(
        build.status.success(),
        "image/build: {}",
        String::from_utf8_lossy(&build.stderr)
    );

    fleet.import_archive(&output.join("outrigger.tar")).await
}
