//! `outrigger node` on machines with real kubelets, as the guide of kubeadm uses it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::{COMPONENT, InTreeCluster, SOON};
use outrigger_environment::{Binaries, manifests};
use outrigger_machines::{Fleet, Machine, real_kubelets};
use serde_json::{Value, json};

const PROGRAM: &str = "/opt/bin/outrigger";
const MIGRATION: &str = "/var/tmp/current.yaml";
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-controller-manager.yaml";

const IN_TREE: &str = "--cloud-provider=aws";
const EXTERNAL: &str = "--cloud-provider=external";
const LEADER_MIGRATION: &str = "--enable-leader-migration";
/// From the admission of a static Pod until the kubelet has synchronized it.
const SETTLED: Duration = Duration::from_secs(5);

#[test]
fn static_pods_get_each_phase_and_their_original() -> Result<()> {
    let outrigger = Binaries::one("outrigger")?;
    real_kubelets(3, async move |fleet| {
        let cluster = InTreeCluster::start(fleet, "kubernetes").await?;
        install_rights(fleet, &cluster.client).await?;
        let mut originals = Vec::new();
        for machine in fleet.machines() {
            machine.install(&outrigger, PROGRAM)?;
            cluster.runs_with(machine, IN_TREE, LEADER_MIGRATION).await?;
            originals.push(std::fs::read(machine.file(MANIFEST))?);
        }
        cluster.apply(fleet, []).await?;
        let look = || look(&outrigger, &cluster.kubeconfig);
        ensure!(external_kubelets(&look()?)? == 0, "an external kubelet at the start");

        for machine in leader_last(fleet, &cluster).await? {
            edit(machine, "Prepare", COMPONENT, &[]).await?;
            cluster.runs_with(machine, LEADER_MIGRATION, EXTERNAL).await?;
        }
        cluster.holder(fleet, "cloud-provider-extraction-migration").await?;

        // No manager of ours runs here that could report the condition Prepared.
        let refused = edit(&fleet.machines()[0], "Migrate", COMPONENT, &[]).await;
        ensure!(
            refused.is_err_and(|error| format!("{error:#}").contains("Prepared")),
            "not refused"
        );
        for machine in leader_last(fleet, &cluster).await? {
            edit(machine, "Migrate", COMPONENT, &["--prepared"]).await?;
            cluster.runs_with(machine, EXTERNAL, IN_TREE).await?;
        }

        a_kubelet_gets_the_external_provider(&fleet.machines()[2]).await?;
        cluster.cluster.ready(&fleet.machines()[2], 3).await?;
        ensure!(external_kubelets(&look()?)? == 1, "not one external kubelet");

        for (machine, original) in fleet.machines().iter().zip(originals) {
            machine.run(PROGRAM, &["node", "undo"]).await?;
            ensure!(
                std::fs::read(machine.file(MANIFEST))? == original,
                "{}: another manifest",
                machine.name()
            );
        }
        for machine in fleet.machines() {
            cluster.runs_with(machine, IN_TREE, LEADER_MIGRATION).await?;
        }
        Ok(())
    })
}

/// The document of `outrigger facts`, after `outrigger check` found no error.
fn look(outrigger: &Path, kubeconfig: &Path) -> Result<Value> {
    let run = |verb: &str| Command::new(outrigger).arg(verb).env("KUBECONFIG", kubeconfig).output();
    let check = run("check")?;
    let (out, err) = (
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr),
    );
    ensure!(check.status.success() && !out.contains('×'), "{out}{err}");

    let facts = run("facts")?;
    ensure!(facts.status.success(), "{}", String::from_utf8_lossy(&facts.stderr));
    Ok(serde_json::from_slice(&facts.stdout)?)
}

/// How many of three kubelets are external, by the command lines of their processes.
fn external_kubelets(facts: &Value) -> Result<usize> {
    let nodes = facts["nodes"]["known"].as_array().context("no Nodes")?;
    let of_process = nodes
        .iter()
        .filter(|node| node["kubelet"]["known"]["from"] == "process");
    ensure!(
        of_process.count() == 3,
        "not three kubelets tell their command line: {nodes:#?}"
    );

    let provider = |node: &&Value| node["kubelet"]["known"]["flags"]["cloud-provider"] == "external";
    Ok(nodes.iter().filter(provider).count())
}

/// After `outrigger node edit` and a restart of the kubelet. The containers do not restart.
async fn a_kubelet_gets_the_external_provider(machine: &Machine) -> Result<()> {
    let before = containers(machine).await?;
    edit(machine, "Migrate", "kubelet", &["--prepared"]).await?;
    let command = ["-c", "tr '\\0' ' ' < /proc/$(cat /run/kubelet.pid)/cmdline"];
    let old = machine.run("sh", &command).await?;
    ensure!(old.starts_with("kubelet ") && !old.contains(EXTERNAL), "{old}");

    machine.run("systemctl", &["restart", "kubelet"]).await?;
    let runs = async || {
        let new = machine.run("sh", &command).await;
        new.map(|new| new.starts_with("kubelet ") && new.contains(EXTERNAL))
    };
    until("a kubelet with the external provider", SOON, runs).await?;

    // A kubelet that finds two versions of a static Pod in its first pass starts neither.
    let admitted =
        "grep -Eq \" $(cat /run/kubelet.pid) .*Topology Admit Handler.*kube-controller-manager\" /var/log/kubelet.log";
    let admits = async || anyhow::Ok(machine.run("sh", &["-c", admitted]).await.is_ok());
    until("the kubelet has read its static Pods", SOON, admits).await?;
    tokio::time::sleep(SETTLED).await;

    let after = containers(machine).await?;
    ensure!(
        !before.is_empty() && before.is_subset(&after),
        "{after:?}, before {before:?}"
    );
    Ok(())
}

/// The IDs of the containers that run, sandboxes included.
async fn containers(machine: &Machine) -> Result<BTreeSet<String>> {
    let list = machine.run("ctr", &["--namespace=k8s.io", "tasks", "list", "--quiet"]);
    Ok(list.await?.lines().map(str::to_owned).collect())
}

/// The machine with the leading kube-controller-manager is changed last.
async fn leader_last<'a>(fleet: &'a Fleet, cluster: &InTreeCluster) -> Result<Vec<&'a Machine>> {
    let leader = cluster.holder(fleet, COMPONENT).await?;
    let mut machines: Vec<_> = fleet.machines().iter().enumerate().collect();
    machines.sort_by_key(|(position, _)| *position == leader);
    Ok(machines.into_iter().map(|(_, machine)| machine).collect())
}

async fn edit(machine: &Machine, phase: &str, component: &str, more: &[&str]) -> Result<()> {
    let migration = json!({
        "apiVersion": "outrigger.dev/v1alpha1",
        "kind": "CloudProviderMigration",
        "metadata": {"name": "cluster", "uid": "1f0e6a35-6b5c-4d0e-9a53-0c8f2d7d3b11"},
        "spec": {"clusterID": "kubernetes", "kubernetesVersion": "1.26", "phase": phase, "targets": [{"profile": "Nodes"}]},
    });
    machine.write(MIGRATION, migration.to_string())?;
    let arguments = [
        &["node", "edit", "--migration", MIGRATION, "--component", component],
        more,
    ]
    .concat();
    machine.run(PROGRAM, &arguments).await.map(drop)
}

/// The rights in kube-system that the manifests grant: without them no kube-controller-manager acquires the migration
/// lease.
async fn install_rights(fleet: &Fleet, client: &Client) -> Result<()> {
    let tools = Tools::load(&[Tool::Kustomize]).await?;
    let mut objects = manifests::render(&tools, fleet.folder(), "rights", "base", "").await?;
    objects.retain(|object| ["Role", "RoleBinding"].iter().any(|kind| object["kind"] == *kind));
    objects.retain(|object| object["metadata"]["namespace"] == "kube-system");
    ensure!(objects.len() >= 2, "{} objects", objects.len());
    manifests::apply(client, &objects).await
}
