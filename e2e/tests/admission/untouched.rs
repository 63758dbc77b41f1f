//! Objects that the webhook must not change.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::objects::{self, Workload};

pub async fn without_a_migration_nothing_changes(bench: &Bench) -> Result<()> {
    bench.namespace("nobody", &json!({})).await?;
    let workload = Workload::new("nobody", "kube-controller-manager");
    let sent = workload.deployment();
    let stored = bench.create(&objects::deployments("nobody"), &sent).await?.granted()?;
    ensure!(objects::line(&stored.body) == objects::line(&sent), "{}", stored.body);
    ensure!(stored.warnings.is_empty(), "{:?}", stored.warnings);
    ensure!(annotations(&stored.body) == annotations(&sent), "{}", stored.body);
    let pod = bench
        .create(&objects::pods("nobody"), &workload.pod())
        .await?
        .granted()?;
    ensure!(
        objects::line(&pod.body) == workload.command && pod.warnings.is_empty(),
        "{pod:?}"
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nobodys"}});
    let node = bench.create("/api/v1/nodes", &node).await?.granted()?.body;
    // A Node that is not Ready is tainted so by the API server itself.
    ensure!(!node["spec"].to_string().contains("uninitialized"), "{node}");
    // It was asked, and had nothing to say: otherwise this would be the silence of a webhook that is not registered.
    let event = bench
        .last_write("deployments", "nobody", "kube-controller-manager")
        .await?;
    ensure!(
        !event.annotations.keys().any(|key| key.contains("outrigger.dev/")),
        "{:?}",
        event.annotations
    );
    ensure!(
        event
            .annotations
            .values()
            .any(|value| value.contains("workloads.outrigger.dev")),
        "{:?}",
        event.annotations
    );
    Ok(())
}

pub async fn protected_namespaces_stay_as_they_are(bench: &Bench) -> Result<()> {
    let label = json!({objects::CLUSTER_LABEL: "protected"});
    bench.namespace("protected", &json!({})).await?;
    let selector = json!({"matchLabels": {objects::CLUSTER_LABEL: "protected"}});
    // Every namespace, by the object alone.
    let targets = json!([{"profile": "HostedControlPlane", "objectSelector": selector}]);
    bench
        .migration("protected", json!({"phase": "Prepare", "targets": targets}))
        .await?;
    for namespace in ["kube-system", "kube-node-lease", "outrigger-system"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        bench.merge(&path, &json!({"metadata": {"labels": label}})).await?;
        let mut workload = Workload::new("protected", "kube-controller-manager").deployment();
        workload["metadata"]["namespace"] = json!(namespace);
        let stored = bench
            .create(&objects::deployments(namespace), &workload)
            .await?
            .granted()?;
        ensure!(
            objects::line(&stored.body) == objects::line(&workload),
            "{namespace}: {}",
            stored.body
        );
        let event = bench
            .last_write("deployments", namespace, "kube-controller-manager")
            .await?;
        let about_it = |text: &String| text.contains("workloads.outrigger.dev");
        ensure!(
            !event.annotations.values().any(about_it),
            "{namespace}: {:?}",
            event.annotations
        );
    }
    // The same object elsewhere is changed, so the migration does reach it.
    let workload = Workload::new("protected", "kube-controller-manager").deployment();
    let stored = bench
        .create(&objects::deployments("protected"), &workload)
        .await?
        .granted()?;
    ensure!(
        objects::is_on(&objects::line(&stored.body), "enable-leader-migration"),
        "{}",
        stored.body
    );
    Ok(())
}

pub async fn audit_mode_says_what_it_would_do(bench: &Bench) -> Result<()> {
    bench.namespace("audited", &json!({})).await?;
    bench
        .migration(
            "audited",
            json!({"phase": "Migrate", "mode": "Audit", "downtime": true}),
        )
        .await?;
    let workload = Workload::new("audited", "kube-controller-manager");
    let sent = workload.deployment();
    let stored = bench.create(&objects::deployments("audited"), &sent).await?.granted()?;
    ensure!(objects::line(&stored.body) == workload.command, "{}", stored.body);
    ensure!(!objects::has_undo(&stored.body), "{}", stored.body);
    let warned = stored
        .warnings
        .iter()
        .any(|text| text.contains("would change") && text.contains("--cloud-provider=external"));
    ensure!(warned, "{:?}", stored.warnings);
    let decision = bench
        .noted(
            "workloads",
            "deployments",
            "audited",
            "kube-controller-manager",
            "decision",
        )
        .await?;
    ensure!(decision.as_deref() == Some("audited"), "{decision:?}");
    let event = bench
        .last_write("deployments", "audited", "kube-controller-manager")
        .await?;
    ensure!(
        !event.was_mutated_by("workloads.outrigger.dev"),
        "{:?}",
        event.annotations
    );
    Ok(())
}

fn annotations(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["metadata"]["annotations"]
}
