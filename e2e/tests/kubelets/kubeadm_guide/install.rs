//! The installation as `docs/guides/install.md` describes it: the image on each machine, and the chart.

use anyhow::{Context, Result, bail, ensure};
use outrigger_cluster_harness::repository;
use outrigger_e2e::page::{Page, commands};
use outrigger_e2e::test_nodes::{self, InTreeCluster};
use outrigger_environment::Binaries;
use outrigger_machines::Fleet;

use super::CLUSTER_ID;
use super::guide::Guide;
use super::operator::Operator;

const IMAGE: &str = "registry.example.com/outrigger";

/// The image on each machine, and `outrigger` where the guide of kubeadm puts it.
pub async fn image(fleet: &Fleet) -> Result<()> {
    test_nodes::import_image(fleet, IMAGE).await?;
    let program = Binaries::one("outrigger")?;
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

/// Runs the guide's command for the chart, which needs no cert-manager, and the checks of `docs/guides/install.md`.
pub async fn install(operator: &Operator, cluster: &InTreeCluster, guide: &Guide) -> Result<()> {
    let [block] = guide.section("Prerequisites")? else {
        bail!("Prerequisites have other blocks")
    };
    let [install] = block.lines.as_slice() else {
        bail!("Prerequisites have other commands: {block:?}")
    };
    ensure!(install.contains(IMAGE), "{install}");
    std::fs::write(
        operator.folder().join("values.yaml"),
        cluster.chart_values(CLUSTER_ID).to_string(),
    )?;
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
