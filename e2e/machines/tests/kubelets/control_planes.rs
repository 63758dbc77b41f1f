//! Three control planes as kubeadm creates them, on real kubelets.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::wait::until;
use outrigger_machines::kubeadm::SERVICE;
use outrigger_machines::{Fleet, real_kubelets};
use serde_json::json;

use crate::support::{SOON, create, message, probe, running};

const COMPONENTS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

#[test]
fn three_control_planes_recover_when_all_machines_restart() -> Result<()> {
    real_kubelets(3, async |fleet| {
        let cluster = fleet.create_control_planes(None).await?;
        let client = cluster.client(&fleet.machines()[0]).await?;
        let before = containers(fleet, &client, &BTreeMap::new()).await?;
        pods_reach_the_api_server(fleet, &client).await?;
        write(&client).await?;

        for machine in fleet.machines_mut() {
            machine.cut_power().await?;
        }
        let off = Timestamp::now();
        for machine in fleet.machines_mut() {
            machine.start().await?;
        }

        for machine in fleet.machines() {
            let client = cluster.client(machine).await?;
            renewed(fleet, &client, off).await?;
            cluster.ready(machine, 3).await?;
            let kept = Api::<ConfigMap>::namespaced(client, "default").get("before").await?;
            ensure!(
                kept.data.is_some_and(|data| data["key"] == "value"),
                "the data are lost"
            );
        }
        let after = containers(fleet, &client, &before).await?;
        ensure!(after.len() == 9, "{after:?}");
        a_controller_manager_works(&client).await
    })
}

/// The containers of all static Pods, which run and are not those of `before`.
async fn containers(
    fleet: &Fleet,
    client: &Client,
    before: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for machine in fleet.machines() {
        for component in COMPONENTS {
            let name = format!("{component}-{}", machine.name());
            let id = running(client, &name, before.get(&name).map(String::as_str)).await?;
            found.insert(name, id);
        }
    }
    Ok(found)
}

/// By the Service from the Pod network and from the host's, and by the address of another machine.
async fn pods_reach_the_api_server(fleet: &Fleet, client: &Client) -> Result<()> {
    let [first, .., last] = fleet.machines() else {
        anyhow::bail!("fewer than two machines");
    };
    let other = format!("{}:6443", last.address());
    let service = format!("{SERVICE}:443");
    let cases = [
        ("pod-network", false, None, &service),
        ("host-network", true, None, &service),
        ("other-machine", false, Some(other.as_str()), &other),
    ];
    for (name, host_network, argument, _) in &cases {
        let arguments: Vec<&str> = argument.iter().copied().collect();
        create(client, &probe(name, first.name(), *host_network, &arguments)).await?;
    }
    for (name, _, _, address) in &cases {
        let message = message(client, name).await?;
        ensure!(
            message.starts_with(*address) && message.contains("\"gitVersion\": \"v1.26.13\""),
            "{name}: {message}"
        );
    }
    Ok(())
}

async fn write(client: &Client) -> Result<()> {
    let map = json!({"metadata": {"name": "before"}, "data": {"key": "value"}});
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map)?)
        .await?;
    Ok(())
}

/// Each kubelet renewed the lease of its Node after `since`: a Node that is Ready may be so only since before.
async fn renewed(fleet: &Fleet, client: &Client, since: Timestamp) -> Result<()> {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    for machine in fleet.machines() {
        let name = machine.name();
        let new = async || {
            let lease = leases.get(name).await.map_err(|error| error.to_string())?;
            let renewed = lease.spec.and_then(|spec| spec.renew_time);
            Ok::<_, String>(renewed.is_some_and(|renewed| renewed.0 > since))
        };
        // Three control planes start at once.
        until(&format!("a heartbeat of {name}"), SOON * 3, new).await?;
    }
    Ok(())
}

/// It creates a service account in each new namespace.
async fn a_controller_manager_works(client: &Client) -> Result<()> {
    let namespace = json!({"metadata": {"name": "after"}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "after");
    until("the default service account", SOON, async || {
        accounts.get("default").await.map(drop)
    })
    .await?;
    Ok(())
}
