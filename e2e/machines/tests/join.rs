//! Real kubelets with a control plane of the harness.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::wait::until;
use outrigger_machines::kubeadm::{SERVICE, ready_nodes};
use outrigger_machines::{Fleet, HOST, processes_below_cgroup, real_kubelets};

use support::{Host, SOON, is_gone, running, sleeper};

async fn api_server(fleet: &Fleet, etcd: &Etcd) -> Result<ApiServer> {
    let mut options = ApiServerOptions::new("cluster", Version::V1_26, "127.96.0.0/16");
    options.addresses = vec![HOST, SERVICE.parse()?];
    Ok(ApiServer::start(fleet.tools(), fleet.folder(), etcd, &options).await?)
}

#[test]
fn three_kubelets_join_and_one_survives_a_power_cut() -> Result<()> {
    let before = Host::now()?;
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

        // A static Pod, and the host during the run.
        let machine = &mut fleet.machines_mut()[1];
        machine.write("/etc/kubernetes/manifests/sleeper.yaml", sleeper("sleeper"))?;
        let first = running(&client, "sleeper-machine2", None).await?;
        ensure!(
            Host::now()? == before,
            "the host changed: {:?}, before: {before:?}",
            Host::now()?
        );

        let running_before = processes_below_cgroup(machine.cgroup())?;
        let containers = processes_below_cgroup(&format!("{}/kubepods", machine.cgroup()))?;
        ensure!(containers.len() >= 2, "a sandbox and a container run: {containers:?}");
        ensure!(
            containers.len() + 2 <= running_before.len(),
            "the kubelet and containerd run: {running_before:?}"
        );

        machine.cut_power().await?;
        for process in &running_before {
            let status = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
            ensure!(!status.contains(machine.cgroup()), "process {process} still runs");
        }
        ensure!(machine.run("true", &[]).await.is_err(), "the machine is off");

        machine.start().await?;
        running(&client, "sleeper-machine2", Some(&first)).await?;

        // The orderly way: it runs again, too.
        let second = running(&client, "sleeper-machine2", Some(&first)).await?;
        machine.stop().await?;
        machine.start().await?;
        running(&client, "sleeper-machine2", Some(&second)).await?;
        Ok(())
    })?;

    ensure!(
        Host::now()? == before,
        "the host changed: {:?}, before: {before:?}",
        Host::now()?
    );
    let names = names.lock().unwrap().take();
    names.map_or(Ok(()), |(cgroup, folder)| is_gone(&cgroup, &folder))
}

#[test]
fn a_failed_run_leaves_only_its_logs() -> Result<()> {
    let before = Host::now()?;
    let names = Arc::new(Mutex::new(None::<(String, PathBuf)>));
    let seen = Arc::clone(&names);

    let ended = real_kubelets(1, async move |fleet| {
        *seen.lock().unwrap() = Some((fleet.cgroup().to_owned(), fleet.folder().to_owned()));
        tokio::time::sleep(Duration::from_millis(100)).await;
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
