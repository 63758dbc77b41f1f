//! The sections of the guide, with the waits that its text asks for.

use anyhow::{Context, Result, bail, ensure};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::{COMPONENT, InTreeCluster, SOON};
use outrigger_machines::{Fleet, Machine};

use super::guide::{Block, Guide, Place};
use super::operator::{Operator, say};
use super::record::Record;

const IN_TREE: &str = "--cloud-provider=aws";
const EXTERNAL: &str = "--cloud-provider=external";
const LEADER_MIGRATION: &str = "--enable-leader-migration";
const API_SERVER: &str = "kube-apiserver";
const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";
const CONFIG: &str = "configmap kubeadm-config";

pub struct Steps<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a InTreeCluster,
    pub operator: &'a Operator,
    pub guide: &'a Guide,
    pub record: &'a Record,
}

impl Steps<'_> {
    pub async fn in_tree(&self) -> Result<()> {
        self.record.mark("phase InTree");
        let [apply] = self.section("1. InTree")? else {
            bail!("InTree has other blocks")
        };
        self.run(apply).await.map(drop)
    }

    /// From InTree to Complete.
    pub async fn forward(&self) -> Result<()> {
        self.prepare().await?;
        self.migrate().await?;
        self.complete().await
    }

    async fn prepare(&self) -> Result<()> {
        self.record.mark("phase Prepare");
        let [begin, edit, after, wait] = self.section("2. Prepare")? else {
            bail!("Prepare has other blocks")
        };
        self.request(begin, "enable-leader-migration", "cloud-provider: external")
            .await?;
        self.copy_if_told(edit)?;
        for machine in self.leader_last().await? {
            self.on(machine, edit).await?;
            self.cluster.runs_with(machine, LEADER_MIGRATION, EXTERNAL).await?;
            self.run(after).await?;
        }
        self.run(wait).await?;
        self.cluster.holder(self.fleet, MIGRATION_LEASE).await?;
        self.record.snapshot(self.cluster).await
    }

    pub async fn migrate(&self) -> Result<()> {
        self.record.mark("phase Migrate");
        let [begin, edit, check] = self.section("3. Migrate")? else {
            bail!("Migrate has other blocks")
        };
        self.request(begin, "cloud-provider: external", "enable-leader-migration")
            .await?;
        self.copy_if_told(edit)?;
        for machine in self.leader_last().await? {
            self.on(machine, edit).await?;
            self.cluster.runs_with(machine, EXTERNAL, IN_TREE).await?;
        }
        let owners = self.run(check).await?;
        ensure!(
            owners
                .lines()
                .any(|line| line.starts_with("service") && line.ends_with("cloud-controller-manager")),
            "{owners}"
        );
        self.record.snapshot(self.cluster).await
    }

    pub async fn complete(&self) -> Result<()> {
        self.record.mark("phase Complete");
        let [begin, edit, worker, after, wait] = self.section("4. Complete")? else {
            bail!("Complete has other blocks")
        };
        self.request(begin, "cloud-provider: external", "cloud-provider: aws")
            .await?;
        self.copy_if_told(edit)?;
        for machine in self.fleet.machines() {
            self.on(machine, edit).await?;
            self.has_provider(machine, EXTERNAL, IN_TREE).await?;
        }
        self.worker(worker, EXTERNAL, IN_TREE).await?;
        self.run(after).await?;
        self.run(wait).await?;
        self.record.snapshot(self.cluster).await
    }

    /// From Complete.
    pub async fn back_to_prepare(&self) -> Result<()> {
        let [migrate, prepare, kubelet, state, edit, holders, ..] = self.section("Go back")? else {
            bail!("Go back has other blocks")
        };
        self.record.mark("phase Migrate");
        self.run(migrate).await?;
        self.record.mark("phase Prepare");
        self.request(prepare, "enable-leader-migration", "cloud-provider: external")
            .await?;
        self.copy_if_told(kubelet)?;
        for machine in self.fleet.machines() {
            self.on(machine, kubelet).await?;
            self.kubelet_runs_with(machine, IN_TREE, EXTERNAL).await?;
        }
        self.run(state).await?;
        for machine in self.leader_last().await? {
            self.on(machine, edit).await?;
            self.cluster.runs_with(machine, LEADER_MIGRATION, EXTERNAL).await?;
            self.has_provider(machine, IN_TREE, EXTERNAL).await?;
        }

        let same = async || -> Result<()> {
            let mut printed = String::new();
            for line in &holders.lines {
                printed += &self.operator.run(line).await?;
            }

            let rows = printed.lines().skip(1);
            let seconds: Vec<_> = rows.filter_map(|row| row.split_whitespace().nth(1)).collect();
            ensure!(seconds.len() > 2 && seconds[0] == seconds[1], "{printed}");
            ensure!(
                printed.contains("service-lb-controller kube-controller-manager"),
                "{printed}"
            );
            Ok(())
        };
        until("the migration lease in the hands of the old manager", SOON, same).await?;
        self.record.snapshot(self.cluster).await
    }

    /// From Prepare.
    pub async fn back_to_in_tree(&self) -> Result<()> {
        let [.., begin, undo, after] = self.section("Go back")? else {
            bail!("Go back has other blocks")
        };
        self.record.mark("phase InTree");
        self.request(begin, "cloud-provider: aws", "enable-leader-migration")
            .await?;
        self.copy_if_told(undo)?;
        for machine in self.leader_last().await? {
            self.on(machine, undo).await?;
            self.cluster.runs_with(machine, IN_TREE, LEADER_MIGRATION).await?;
            self.has_provider(machine, IN_TREE, EXTERNAL).await?;
            self.run(after).await?;
        }
        self.record.snapshot(self.cluster).await
    }

    fn section(&self, name: &str) -> Result<&[Block]> {
        self.guide.section(name)
    }

    /// Runs a block where kubectl works, and returns what the last command printed.
    async fn run(&self, block: &Block) -> Result<String> {
        ensure!(
            matches!(block.place, Place::Operator | Place::AfterEachMachine),
            "{block:?}"
        );
        let mut printed = String::new();
        for line in &block.lines {
            printed = self.operator.run(line).await?;
        }
        Ok(printed)
    }

    /// Runs a block that sets a phase and prints kubeadm's configuration, until the webhook has given it the form of the
    /// phase.
    async fn request(&self, block: &Block, text: &str, missing: &str) -> Result<()> {
        self.run(block).await?;
        let print = block.lines.last().filter(|line| line.contains(CONFIG));
        let print = print.with_context(|| format!("the last command does not print kubeadm-config: {block:?}"))?;
        let wanted = |config: &str| config.contains(text) && !config.contains(missing);
        self.operator.run_until(print, wanted).await.map(drop)
    }

    /// Copies `current.yaml` to all machines, if the guide says so before the block.
    fn copy_if_told(&self, block: &Block) -> Result<()> {
        if !block.copies {
            return Ok(());
        }
        let current = std::fs::read(self.operator.folder().join("current.yaml"))?;
        for machine in self.fleet.machines() {
            say(&format!("current.yaml is copied to {}", machine.name()));
            machine.write("/var/tmp/current.yaml", current.clone())?;
        }
        Ok(())
    }

    /// No machine is only a worker: the last one plays it. A second edit changes nothing.
    async fn worker(&self, block: &Block, flag: &str, missing: &str) -> Result<()> {
        let last = self.fleet.machines().last().context("no machine")?;
        self.on(last, block).await?;
        self.has_provider(last, flag, missing).await
    }

    /// Runs a block on a machine.
    async fn on(&self, machine: &Machine, block: &Block) -> Result<()> {
        ensure!(matches!(block.place, Place::Machines | Place::Workers), "{block:?}");
        for line in &block.lines {
            say(&format!("{} # {line}", machine.name()));
            let printed = machine.run("sh", &["-c", &format!("cd /var/tmp && {line}")]).await?;
            print!("{printed}");
        }
        Ok(())
    }

    /// The kube-apiserver and the kubelet of a machine run with `flag`, and its API server answers.
    async fn has_provider(&self, machine: &Machine, flag: &str, missing: &str) -> Result<()> {
        self.kubelet_runs_with(machine, flag, missing).await?;
        self.cluster
            .component_runs_with(API_SERVER, machine, flag, missing)
            .await?;
        self.cluster.cluster.ready(machine, self.fleet.machines().len()).await
    }

    /// The kubelet of a machine runs with `flag`, and all Nodes are Ready.
    async fn kubelet_runs_with(&self, machine: &Machine, flag: &str, missing: &str) -> Result<()> {
        let command = ["-c", "tr '\\0' ' ' < /proc/$(cat /run/kubelet.pid)/cmdline"];
        let runs = async || -> Result<()> {
            let line = machine.run("sh", &command).await?;
            ensure!(
                line.starts_with("kubelet ") && line.contains(flag) && !line.contains(missing),
                "{line}"
            );
            Ok(())
        };
        until(&format!("the kubelet of {} with {flag}", machine.name()), SOON, runs).await?;
        self.cluster.cluster.ready(machine, self.fleet.machines().len()).await
    }

    /// The machine with the leading kube-controller-manager is changed last.
    async fn leader_last(&self) -> Result<Vec<&Machine>> {
        let leader = self.cluster.holder(self.fleet, COMPONENT).await?;
        let mut machines: Vec<_> = self.fleet.machines().iter().enumerate().collect();
        machines.sort_by_key(|(position, _)| *position == leader);
        Ok(machines.into_iter().map(|(_, machine)| machine).collect())
    }
}
