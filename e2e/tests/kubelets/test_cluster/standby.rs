//! A second manager on the only machine takes over from the DaemonSet's.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::SOON;
use serde_json::json;

use super::nodes::{Machine, User};
use crate::hand_over;
use crate::processes::{NEW, Processes};

const NAME: &str = "standby";
const PODS: &str = "kubectl -n kube-system get pods -l app.kubernetes.io/name=outrigger-manager";

pub async fn takes_over(user: &User, client: &Client, machine: &Machine) -> Result<()> {
    let processes = Processes::of(vec![(machine.cgroup.clone(), machine.node.clone())]);
    let is_recorded = async || processes.spans().iter().any(|span| span.component == NEW);
    until("the leading manager's process in the record", SOON, is_recorded).await?;
    start(client, &machine.node).await?;

    let pod = user.run(&format!("{PODS} -o name"))?;
    let delete = format!("kubectl -n kube-system delete {}", pod.trim());
    let delete = async || user.run(&delete).map(drop);
    hand_over::by_deletion(client, &processes, &machine.node, &[Lease::C], delete).await?;

    // The Pod that replaces it is now the standby.
    user.repeat(&format!("{PODS} --no-headers"), |pods| {
        pods.lines().count() == 1 && pods.contains(" 1/1 ")
    })?;
    user.run(&format!("kubectl -n kube-system delete pod {NAME}")).map(drop)
}

/// A Pod as the DaemonSet's, on another port of the same machine.
async fn start(client: &Client, node: &str) -> Result<()> {
    const PORT: u16 = 10268;
    let sets = Api::<DaemonSet>::namespaced(client.clone(), "kube-system");
    let set = sets
        .get("outrigger-manager")
        .await?
        .spec
        .context("an empty DaemonSet")?;
    let mut spec = serde_json::to_value(set.template.spec)?;
    spec["nodeName"] = json!(node);
    let container = &mut spec["containers"][0];
    container["ports"] = json!([{"name": "https", "containerPort": PORT, "hostPort": PORT}]);
    let flags = container["args"].as_array_mut().context("no flags")?;
    flags.push(json!(format!("--secure-port={PORT}")));

    // Without the labels, by which the DaemonSet would adopt it.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec});
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let is_ready = async || -> Result<bool> {
        let conditions = pods.get(NAME).await?.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"))
    };
    Ok(until("a standby that is ready", SOON, is_ready).await?)
}
