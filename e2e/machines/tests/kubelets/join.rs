//! Real kubelets with a control plane of the harness.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use anyhow::{Result, ensure};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::wait::until;
use outrigger_machines::kubeadm::{SERVICE, ready_nodes};
use outrigger_machines::{Fleet, HOST, Host, Machine, is_gone, processes_below_cgroup, real_kubelets};

use crate::support::{SOON, running, sleeper};

/// The host's setting before the tests.
static OVERCOMMIT: LazyLock<String> =
    LazyLock::new(|| std::fs::read_to_string("/proc/sys/vm/overcommit_memory").expect("a setting"));

async fn api_server(fleet: &Fleet, etcd: &Etcd) -> Result<ApiServer> {
    let mut options = ApiServerOptions::new("cluster", Version::V1_26, "127.96.0.0/16");
    options.addresses = vec![HOST, SERVICE.parse()?];
    Ok(ApiServer::start(fleet.tools(), fleet.folder(), etcd, &options).await?)
}

#[test]
fn three_kubelets_join_and_one_survives_a_power_cut() -> Result<()> {
    let before = Host::now()?;
    LazyLock::force(&OVERCOMMIT);
    let names = Arc::new(Mutex::new(None::<(String, PathBuf)>));
    let seen = Arc::clone(&names);

    real_kubelets(3, async move |fleet| {
        *seen.lock().unwrap() = Some((fleet.cgroup().to_owned(), fleet.folder().to_owned()));
        let etcd = Etcd::start(fleet.tools(), fleet.folder()).await?;
        let server = api_server(fleet, &etcd).await?;
        let client = server.client(&User::admin(), "outrigger-e2e").await?;

        fleet.join(&server).await?;
        let all = async || ready_nodes(&client).await.map(|nodes| nodes.len() == 3);
        until("three Nodes that are Ready", SOON, all).await?;

        let machine = &mut fleet.machines_mut()[1];
        let name = format!("sleeper-{}", machine.name());
        machine.write("/etc/kubernetes/manifests/sleeper.yaml", sleeper("sleeper"))?;
        let first = running(&client, &name, None).await?;
        let processes = processes_of(machine).await?;

        machine.cut_power().await?;
        for process in &processes {
            let cgroups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
            ensure!(!cgroups.contains(machine.cgroup()), "process {process} still runs");
        }
        ensure!(machine.run("true", &[]).await.is_err(), "the machine is off");

        machine.start().await?;
        let second = running(&client, &name, Some(&first)).await?;

        // The orderly way.
        machine.stop().await?;
        machine.start().await?;
        running(&client, &name, Some(&second)).await?;
        Ok(())
    })?;

    let after = Host::now()?;
    ensure!(after == before, "the host changed: {after:?}, before: {before:?}");
    let names = names.lock().unwrap().take();
    names.map_or(Ok(()), |(cgroup, folder)| is_gone(&cgroup, &folder))
}

/// The processes of a machine whose kubelet runs one Pod. The host's settings are what they were before.
async fn processes_of(machine: &Machine) -> Result<BTreeSet<i32>> {
    let all = processes_below_cgroup(machine.cgroup())?;
    let containers = processes_below_cgroup(&format!("{}/kubepods", machine.cgroup()))?;
    ensure!(containers.len() >= 2, "a sandbox and a container run: {containers:?}");
    ensure!(
        containers.len() + 4 <= all.len(),
        "process 1, containerd, its shim and the kubelet run: {all:?}"
    );

    let path = "/proc/sys/vm/overcommit_memory";
    let inside = machine.run("cat", &[path]).await?;
    ensure!(inside.trim() == "1", "the kubelet sets {path} to 1, not to {inside}");
    let outside = std::fs::read_to_string(path)?;
    ensure!(outside == *OVERCOMMIT, "the host's {path} changed to {outside}");
    Ok(all)
}

#[test]
fn a_failed_run_leaves_only_its_logs() -> Result<()> {
    let before = Host::now()?;
    let names = Arc::new(Mutex::new(None::<(String, PathBuf)>));
    let seen = Arc::clone(&names);

    let ended = real_kubelets(1, async move |fleet| {
        *seen.lock().unwrap() = Some((fleet.cgroup().to_owned(), fleet.folder().to_owned()));
        anyhow::bail!("on purpose")
    });

    let Some((cgroup, folder)) = names.lock().unwrap().take() else {
        return ended; // left out
    };
    let message = format!("{:#}", ended.expect_err("the test failed"));
    ensure!(
        message.contains("on purpose") && message.contains(&folder.display().to_string()),
        "{message}"
    );
    ensure!(
        Host::now()? == before,
        "the host changed: {:?}, before: {before:?}",
        Host::now()?
    );

    ensure!(folder.join("machine1/disk/var/log/containerd.log").exists(), "no log");
    ensure!(!folder.join("machine1/disk/var/lib").exists(), "images are left");
    std::fs::remove_dir_all(&folder)?;
    is_gone(&cgroup, &folder)
}
