//! The webhook is killed, hangs, and comes back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::Bench;
use crate::cluster_api;
use crate::objects::{self, Workload, flag, has_undo, line};

const GUARDED: &str = "guarded";

pub async fn an_outage_stops_only_what_must_not_start(bench: &mut Bench) -> Result<()> {
    bench
        .namespace(GUARDED, &json!({"outrigger.dev/control-plane": "true"}))
        .await?;
    bench.namespace("unguarded", &json!({})).await?;
    for name in [GUARDED, "unguarded"] {
        bench.migration(name, json!({"phase": "Migrate"})).await?;
        bench.set_prepared(name, "True").await?;
    }
    bench.kill_webhook().await?;
    while_it_is_away(bench, "killed").await.context("killed")?;
    bench.start_webhook_again().await?;
    all_heals(bench, "killed").await.context("after a restart")?;

    // A webhook that answers nobody is worse than none: every call waits its three seconds.
    bench.webhook().pause().await?;
    let start = Instant::now();
    let hanging = Workload::new("unguarded", "hanging");
    let stored = bench
        .create(&objects::deployments("unguarded"), &hanging.deployment())
        .await?;
    bench.webhook().resume()?;
    ensure!(!has_undo(&stored.granted()?.body), "nobody answered");
    // Without a limit of its own a registration gets 10 s.
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(9), "a Deployment was held up for {took:?}");

    cluster_api::an_original_waits_for_the_webhook(bench)
        .await
        .context("Cluster API")
}

async fn while_it_is_away(bench: &Bench, name: &str) -> Result<()> {
    for namespace in [GUARDED, "unguarded"] {
        let workload = Workload::new(namespace, name);
        let stored = bench
            .create(&objects::deployments(namespace), &workload.deployment())
            .await?
            .granted()?
            .body;
        ensure!(line(&stored) == workload.command && !has_undo(&stored), "{stored}");
        let event = bench.last_write("deployments", namespace, name).await?;
        let open = |(key, value): (&String, &String)| {
            key.starts_with("failed-open.mutation.webhook.admission.k8s.io/") && value == "workloads.outrigger.dev"
        };
        ensure!(
            event.annotations.iter().any(open),
            "the audit log says nothing of it: {:?}",
            event.annotations
        );
    }
    let refused = bench
        .create(&objects::pods(GUARDED), &Workload::new(GUARDED, name).pod())
        .await?;
    ensure!(
        refused.code == 500,
        "a kube-controller-manager must not start unseen: {refused:?}"
    );
    let told = refused
        .message()
        .contains("kube-controller-manager-pods-by-app.outrigger.dev");
    ensure!(told, "the message names the entry: {}", refused.message());

    // Everything else starts: other Pods of the control plane, Pods elsewhere, Nodes.
    bench
        .create(&objects::pods(GUARDED), &Workload::api_server(GUARDED).pod())
        .await?
        .granted()?;
    let mut other = Workload::new(GUARDED, "scheduler");
    (other.app, other.image) = (
        "kube-scheduler".to_owned(),
        "registry.k8s.io/kube-scheduler:v1.26.13".to_owned(),
    );
    bench.create(&objects::pods(GUARDED), &other.pod()).await?.granted()?;
    bench
        .create(&objects::pods("unguarded"), &Workload::new("unguarded", name).pod())
        .await?
        .granted()?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("joined-while-{name}")}});
    bench.create("/api/v1/nodes", &node).await?.granted()?;
    Ok(())
}

/// The Pod that was refused is tried again and gets its flags; workloads get theirs when they are asked.
async fn all_heals(bench: &Bench, name: &str) -> Result<()> {
    let pod = bench
        .create(&objects::pods(GUARDED), &Workload::new(GUARDED, name).pod())
        .await?
        .granted()?
        .body;
    ensure!(flag(&line(&pod), "cloud-provider") == Some("external"), "{pod}");
    for namespace in [GUARDED, "unguarded"] {
        let ask = json!({"metadata": {"annotations": {objects::APPLY: format!("{namespace}/Migrate")}}});
        let stored = bench.merge(&Workload::new(namespace, name).path(), &ask).await?.body;
        ensure!(
            flag(&line(&stored), "cloud-provider") == Some("external") && has_undo(&stored),
            "{stored}"
        );
    }
    Ok(())
}
