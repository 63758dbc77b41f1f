//! A cluster with real kubelets and a simulated AWS, as `make nodes` starts it and tests use it.
//!
//! Stand-ins: there is no scheduler (`scheduler.rs`) and no kube-proxy; AWS and the instance metadata service are
//! simulated; credentials in the environment stand for the role of the instance.

mod cloud;
mod cluster;
mod output;
mod scheduler;

use std::net::TcpListener;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::repository;
use outrigger_environment::{Binaries, Progress};
use outrigger_machines::Fleet;
use tokio::process::Command;
use tokio::time::timeout;

pub use cloud::Cloud;
pub use cluster::{COMPONENT, InTreeCluster, LOOPBACK, SOON};
pub use output::Output;
pub use scheduler::Scheduler;

/// The console blocks of the section in `docs/try.md` after `make nodes`, in order. A test compares them.
pub const COMMANDS: [&str; 2] = [INSTALL, UNINSTALL];
const INSTALL: &str = "\
$ export PATH=$PWD/target/nodes/bin:$PATH KUBECONFIG=$PWD/target/nodes/kubeconfig
$ helm install outrigger charts/outrigger --namespace outrigger-system --create-namespace \\
    --set image.repository=localhost/outrigger --set clusterName=kubernetes --values target/nodes/values.yaml
$ kubectl -n outrigger-system rollout status deployment/outrigger-webhook
$ kubectl -n kube-system rollout status daemonset/outrigger-manager
$ kubectl get pods -A
";
const UNINSTALL: &str = "\
$ helm uninstall outrigger --namespace outrigger-system
";
/// The name that `make image` gives to the image.
const IMAGE: &str = "localhost/outrigger";
const CLUSTER_ID: &str = "test-nodes";
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};
/// How often a step that goes on is printed.
const SHOWN: Duration = Duration::from_secs(10);

/// Starts the cluster, prints the commands for it, and keeps it running. `listener` is a socket of the host's network, by
/// which the host reaches the API servers.
///
/// # Errors
/// When a component does not start.
pub async fn run(fleet: &mut Fleet, output: &Output, listener: TcpListener, progress: &Progress) -> Result<()> {
    let folder = fleet.folder().display().to_string();
    progress.say(&format!("containerd runs; logs: {folder}"));
    let started = InTreeCluster::start(fleet, CLUSTER_ID);
    let mut cluster = shown(progress, "a simulated AWS, kubelets and control planes", started).await?;
    let names = fleet.machines().iter().map(|machine| machine.name().to_owned());
    let names: Vec<_> = names.collect();
    let _scheduler = Scheduler::start(cluster.client.clone(), names.clone());
    shown(progress, "labels of the Nodes", cluster.apply(fleet, [])).await?;
    progress.say(&format!("Ready: {}", names.join(", ")));

    shown(progress, "the image on each machine", import_image(fleet, IMAGE)).await?;
    let kubeconfig = cluster.publish(fleet, listener)?;
    let values = cluster.chart_values(CLUSTER_ID);
    output.write(fleet, &kubeconfig, &values).await?;

    progress.step("Ready. In another terminal, in this folder:");
    progress.line(&format!("\n{}\nand at the end:\n\n{}", INSTALL.trim_end(), UNINSTALL));
    progress.line("The cluster runs until you press Ctrl-C here.");
    std::future::pending().await
}

/// Prints what is awaited, at once and every few seconds.
async fn shown<T>(progress: &Progress, what: &str, awaited: impl Future<Output = Result<T>>) -> Result<T> {
    progress.say(&format!("starting: {what}"));
    let mut awaited = pin!(awaited);
    loop {
        match timeout(SHOWN, &mut awaited).await {
            Ok(result) => return result.with_context(|| what.to_owned()),
            Err(_) => progress.say(&format!("   ... waiting: {what}")),
        }
    }
}

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
