//! All machines lose power at once, and start while no API server reaches the webhook.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::{COMPONENT, InTreeCluster, SOON};
use outrigger_environment::load_balancers;
use outrigger_machines::Fleet;
use serde_json::json;

use super::operator::say;

const LEASES: [&str; 3] = [
    COMPONENT,
    "cloud-controller-manager",
    "cloud-provider-extraction-migration",
];
/// The port of the webhook's Pods.
const WEBHOOK: &str = "8443";

pub async fn all_machines(fleet: &mut Fleet, cluster: &InTreeCluster) -> Result<()> {
    let before = load_balancers(&cluster.cloud.moto, &cluster.cloud.proxy).await?;
    say("== power cut");
    for machine in fleet.machines_mut() {
        machine.cut_power().await?;
    }
    let off = Timestamp::now();
    for machine in fleet.machines_mut() {
        machine.start().await?;
        // The worst kind of absence: no packet comes back.
        let rule = ["-I", "OUTPUT", "-p", "tcp", "--dport", WEBHOOK, "-j", "DROP"];
        machine.run("iptables", &rule).await?;
    }

    for machine in fleet.machines() {
        let client = cluster.cluster.client(machine).await?;
        for node in fleet.machines() {
            renewed(&client, "kube-node-lease", node.name(), off).await?;
        }
        cluster.cluster.ready(machine, fleet.machines().len()).await?;
    }
    let client = cluster.cluster.client(&fleet.machines()[0]).await?;
    for lease in LEASES {
        renewed(&client, "kube-system", lease, off).await?;
    }
    an_api_server_misses_the_webhook(fleet, &client).await?;
    say("API servers, kubelets and managers work again");

    let after = load_balancers(&cluster.cloud.moto, &cluster.cloud.proxy).await?;
    ensure!(after == before, "before: {before:#?}, after: {after:#?}");
    Ok(())
}

/// A write that the webhook would review is accepted, and its packets to the webhook were dropped.
async fn an_api_server_misses_the_webhook(fleet: &Fleet, client: &Client) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"e2e.outrigger.dev/power-cut": "true"}}}));
    maps.patch("kubeadm-config", &PatchParams::default(), &patch).await?;

    let mut dropped = 0;
    for machine in fleet.machines() {
        let rules = machine.run("iptables", &["-nvxL", "OUTPUT"]).await?;
        let rule = rules
            .lines()
            .find(|line| line.contains("DROP") && line.contains(WEBHOOK));
        let packets = rule.and_then(|rule| rule.split_whitespace().next()?.parse::<u64>().ok());
        dropped += packets.unwrap_or_default();
    }
    ensure!(dropped > 0, "the API servers reached the webhook, or did not call it");
    Ok(())
}

/// A lease has a holder that renewed it after `since`.
async fn renewed(client: &Client, namespace: &str, name: &str, since: Timestamp) -> Result<()> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let new = async || {
        let lease = tokio::time::timeout(std::time::Duration::from_secs(10), leases.get(name)).await;
        let lease = lease
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        let spec = lease.spec.unwrap_or_default();
        let held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
        Ok::<_, String>(held && spec.renew_time.is_some_and(|renewed| renewed.0 > since))
    };
    Ok(until(&format!("a renewal of the lease {name}"), SOON * 2, new).await?)
}
