//! New Nodes wait for a cloud-controller-manager only while there is one that will come for them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bench::Bench;

const NODES: &str = "/api/v1/nodes";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The bench's API server asks about its Nodes at both paths: as a cluster that migrates itself, and as the tenant
/// "hosted". One taint must come of it.
pub async fn new_nodes_are_tainted_only_while_a_manager_is_at_work(bench: &Bench) -> Result<()> {
    for (name, hosted) in [("itself", false), ("hosted", true)] {
        let selector = json!({"matchLabels": {"outrigger.dev/cluster": "hosted"}});
        let target = match hosted {
            true => json!({"profile": "HostedControlPlane", "namespaceSelector": selector}),
            false => json!({"profile": "Nodes"}),
        };
        bench
            .migration(name, json!({"phase": "Prepare", "targets": [target]}))
            .await?;
        one_of_them(bench, name).await?;
        bench.change(name, json!({"nodeTaint": "Never"})).await?;
    }
    Ok(())
}

async fn one_of_them(bench: &Bench, migration: &str) -> Result<()> {
    let path = format!("{LEASE}/cloud-controller-manager");
    renew(bench, &path).await?;
    ensure!(
        !is_tainted(&create(bench, &format!("{migration}-prepare"), json!({})).await?),
        "too early: phase Prepare"
    );

    bench.change(migration, json!({"phase": "Migrate"})).await?;
    release(bench, &path).await?;
    until_tainted(bench, false).await?;
    let nobody = create(bench, &format!("{migration}-nobody"), json!({})).await?;
    ensure!(!is_tainted(&nobody), "nobody would remove the taint: {nobody}");

    renew(bench, &path).await?;
    until_tainted(bench, true).await?;
    let other = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let name = format!("{migration}-new");
    let new = create(bench, &name, json!({"taints": other})).await?;
    let ours = taints(&new).into_iter().filter(|key| *key == TAINT).count();
    ensure!(ours == 1 && taints(&new).contains(&"dedicated"), "{new}");
    let entry = if migration == "hosted" { "hosted-nodes" } else { "nodes" };
    let decision = bench.noted(entry, "nodes", "", &name, "decision").await?;
    ensure!(decision.as_deref() == Some("changed"), "{decision:?}");

    renew(bench, &path).await?;
    let known = create(
        bench,
        &format!("{migration}-known"),
        json!({"providerID": "aws:///us-west-2a/i-1"}),
    )
    .await?;
    ensure!(!is_tainted(&known), "it is initialized: {known}");
    renew(bench, &path).await?;
    let old = bench
        .merge(
            &format!("{NODES}/{migration}-nobody"),
            &json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await?
        .body;
    ensure!(!is_tainted(&old), "a Node that is there keeps working: {old}");

    // Not renewed any more: after its four seconds the holder counts as gone.
    until_tainted(bench, false).await?;
    release(bench, &path).await
}

async fn create(bench: &Bench, name: &str, spec: Value) -> Result<Value> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
    Ok(bench.create(NODES, &node).await?.granted()?.body)
}

/// Asks by dry runs, which are answered as real requests are.
async fn until_tainted(bench: &Bench, wanted: bool) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe"}});
    bench
        .until(&format!("a new Node is tainted: {wanted}"), async || {
            let answer = bench.create(&format!("{NODES}?dryRun=All"), &node).await?.granted()?;
            Ok(is_tainted(&answer.body) == wanted)
        })
        .await
}

fn taints(node: &Value) -> Vec<&str> {
    let list = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(|taint| taint["key"].as_str()).collect()
}

fn is_tainted(node: &Value) -> bool {
    taints(node).contains(&TAINT)
}

async fn renew(bench: &Bench, path: &str) -> Result<()> {
    write(bench, path, "manager-1").await
}

async fn release(bench: &Bench, path: &str) -> Result<()> {
    write(bench, path, "").await
}

async fn write(bench: &Bench, path: &str, holder: &str) -> Result<()> {
    // MicroTime wants six digits.
    let now = format!("{:.6}", jiff::Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "cloud-controller-manager"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 4, "renewTime": now},
    });
    let query = format!("{path}?fieldManager=test&force=true");
    let body = Some((outrigger_environment::review::APPLY, &lease));
    outrigger_environment::review::send(&bench.admin, http::Method::PATCH, &query, body)
        .await?
        .granted()?;
    Ok(())
}
