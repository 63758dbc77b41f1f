//! The installation as `docs/guides/install.md` describes it: the image on each machine, and the chart.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use outrigger_cluster_harness::repository;
use outrigger_environment::Binaries;
use outrigger_machines::Fleet;
use serde_json::{Value, json};

use super::guide::{Guide, Page, commands};
use super::operator::Operator;
use crate::in_tree::{InTreeCluster, credentials};

const IMAGE: &str = "registry.example.com/outrigger";
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// The image of the programs of the tests, without their symbols, on each machine, and `outrigger` where the guide of
/// kubeadm puts it.
pub async fn image(fleet: &Fleet) -> Result<()> {
    let program = Binaries::one("outrigger")?;
    Binaries::find()?;
    let programs = program.parent().context("a program in no folder")?.to_owned();
    let output = fleet.folder().join("image");
    let archive = output.join("outrigger.tar");
    tokio::task::spawn_blocking(move || build(&programs, &output)).await??;
    fleet.import_archive(&archive).await?;
    for machine in fleet.machines() {
        machine.install(&program, "/opt/bin/outrigger")?;
    }
    tool_on_path(fleet).await
}

/// `/usr/local` of a machine is empty after each start.
pub async fn tool_on_path(fleet: &Fleet) -> Result<()> {
    for machine in fleet.machines() {
        machine
            .run("ln", &["-sf", "/opt/bin/outrigger", "/usr/local/bin/outrigger"])
            .await?;
    }
    Ok(())
}

fn build(programs: &Path, output: &Path) -> Result<()> {
    let build = Command::new(repository::root().join("image/build"))
        .arg(format!("--programs={ARCHITECTURE}={}", programs.display()))
        .arg(format!("--output={}", output.display()))
        .args(["--strip", "--name", IMAGE])
        .output()
        .context("python3 runs image/build")?;
    ensure!(
        build.status.success(),
        "image/build: {}",
        String::from_utf8_lossy(&build.stderr)
    );
    Ok(())
}

/// Runs the guide's command for the chart, which needs no cert-manager, and the checks of `docs/guides/install.md`.
pub async fn install(operator: &Operator, cluster: &InTreeCluster, guide: &Guide) -> Result<()> {
    let [block] = guide.section("Prerequisites")? else {
        bail!("Prerequisites have other blocks")
    };
    let [install] = block.lines.as_slice() else {
        bail!("Prerequisites have other commands: {block:?}")
    };
    ensure!(install.contains(IMAGE), "{install}");
    std::fs::write(operator.folder().join("values.yaml"), values(cluster).to_string())?;
    std::os::unix::fs::symlink(repository::root().join("charts"), operator.folder().join("charts"))?;
    operator.run(&format!("{install} --values values.yaml")).await?;

    let page = Page::read("docs/guides/install.md")?;
    let lines = commands_of(&page, "Apply it")?;
    let [apply, checks @ .., last] = lines.as_slice() else {
        bail!("Apply it has other commands: {lines:?}")
    };
    ensure!(apply.starts_with("kubectl apply"), "{apply}");
    for line in checks {
        operator.run(line).await?;
    }
    // The webhook sets the field when it serves.
    operator.run_until(last, |printed| !printed.is_empty()).await.map(drop)
}

fn commands_of(page: &Page, section: &str) -> Result<Vec<String>> {
    let mut blocks = page.fenced("console");
    let block = blocks.find(|block| block.heading == section);
    let block = block.with_context(|| format!("no section {section}"))?;
    commands(&block.text)
}

/// The cloud configuration of the kube-controller-managers. Credentials in the environment stand for the role of the
/// instance.
fn values(cluster: &InTreeCluster) -> Value {
    let node = json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    let variables = credentials("outrigger-manager");
    let variables = variables
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    let environment: Vec<Value> = std::iter::once(node).chain(variables).collect();
    json!({
        "cloudConfig": cluster.cloud.configuration,
        "manager": {"env": environment},
    })
}
