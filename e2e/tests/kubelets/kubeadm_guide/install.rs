//! The installation as `docs/guides/install.md` describes it: the image on each machine, the overlay, its commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::repository;
use outrigger_environment::Binaries;
use outrigger_machines::Fleet;

use super::guide::{Page, commands};
use super::operator::Operator;
use crate::in_tree::{InTreeCluster, credentials};

const IMAGE: &str = "registry.example.com/outrigger";
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};
const CERT_MANAGER: &str = "  - ../../manifests/components/cert-manager\n";
const COMPONENTS: &str = "  - ../../manifests/components/kube-system\n  - ../../manifests/components/self-signed\n";

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

/// Runs the commands of the page, and waits until the API servers can call the webhook.
pub async fn install(operator: &Operator, cluster: &InTreeCluster) -> Result<()> {
    let page = Page::read("docs/guides/install.md")?;
    let folder = operator.folder().join("overlays/prod");
    std::fs::create_dir_all(&folder)?;
    copy(
        &repository::root().join("manifests"),
        &operator.folder().join("manifests"),
    )?;
    std::fs::write(folder.join("kustomization.yaml"), overlay(&page)?)?;
    std::fs::write(folder.join("cloud.conf"), &cluster.cloud.configuration)?;

    let (_, text) = page
        .fenced("console")
        .find(|(heading, _)| heading == "Apply it")
        .context("no block")?;
    let lines = commands(&text)?;
    let (last, lines) = lines.split_last().context("no command")?;
    for line in lines {
        operator.run(line).await?;
    }
    // The webhook sets the field when it serves.
    operator.run_until(last, |printed| !printed.is_empty()).await.map(drop)
}

/// The page's overlay with its cloud configuration and the components of the guide of kubeadm, but the webhook issues its
/// own certificate. Credentials in the environment stand for the role of the instance.
fn overlay(page: &Page) -> Result<String> {
    let blocks: Vec<String> = page.fenced("yaml").map(|(_, text)| text).collect();
    let block = |part: &str| {
        blocks
            .iter()
            .find(|text| text.contains(part))
            .with_context(|| format!("no block with {part}"))
    };
    let overlay = block("kind: Kustomization")?;
    ensure!(
        overlay.contains(CERT_MANAGER) && overlay.contains(IMAGE),
        "another overlay: {overlay}"
    );

    let (generator, more) = block("configMapGenerator:")?
        .split_once("patches:\n")
        .context("no patches")?;
    let (_, more) = more.split_once("    patch: |\n").context("no patch")?;
    let overlay = overlay
        .replace(CERT_MANAGER, COMPONENTS)
        .replace("patches:\n", &format!("{generator}patches:\n"));
    Ok(format!("{overlay}{more}{}", environment()))
}

fn environment() -> String {
    let node = "{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}".to_owned();
    let variables = credentials("outrigger-manager")
        .into_iter()
        .map(|(name, value)| format!("{{name: {name}, value: {value}}}"));
    let all: Vec<String> = std::iter::once(node).chain(variables).collect();
    format!(
        "      - op: add\n        path: /spec/template/spec/containers/0/env\n        value: [{}]\n",
        all.join(", ")
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
