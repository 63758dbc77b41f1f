//! Every replica of the webhook is gone, and API server, etcd and the node with them. Everything that a cluster needs
//! starts again without the webhook, except a kube-controller-manager that would be a second owner. It waits, and
//! starts in its new form as soon as the webhook answers, without an operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_environment::review;
use serde_json::{Value, json};

use crate::bench::{Bench, SOON};
use crate::objects::{self, Workload, flag, line};

const NAME: &str = "healing";
const OWN: &str = "outrigger-system";
const GRACE: Duration = Duration::from_secs(20);

pub async fn a_cluster_comes_back_without_the_webhook_and_heals_with_it(bench: &mut Bench) -> Result<()> {
    bench
        .namespace(NAME, &json!({"outrigger.dev/control-plane": "true"}))
        .await?;
    bench.migration(NAME, json!({"phase": "Migrate"})).await?;
    bench.set_prepared(NAME, "True").await?;
    // Even so the webhook's own Pods must not wait for it.
    let label = json!({"metadata": {"labels": {"outrigger.dev/control-plane": "true"}}});
    bench.merge(&format!("/api/v1/namespaces/{OWN}"), &label).await?;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": OWN}});
    bench
        .create(&format!("/api/v1/namespaces/{OWN}/serviceaccounts"), &account)
        .await?
        .granted()?;
    for phase in ["Migrate", "Complete"] {
        bench.change(NAME, json!({"phase": phase})).await?;
        bench.kill_webhook().await?;
        restart(bench).await.context("API server and etcd")?;
        comes_back(bench, phase)
            .await
            .with_context(|| format!("{phase}: without the webhook"))?;
        bench.start_webhook_again().await?;
        heals(bench, phase)
            .await
            .with_context(|| format!("{phase}: with the webhook"))?;
    }
    Ok(())
}

async fn restart(bench: &mut Bench) -> Result<()> {
    bench.server.stop(GRACE).await?;
    bench.etcd.process().kill_now().await?;
    bench.etcd.start_again().await?;
    bench.server.start_again().await?;
    Ok(())
}

/// The Pod that a controller makes from a template of the old form.
fn old_pod(phase: &str) -> Value {
    Workload::new(NAME, &format!("old-{}", phase.to_lowercase())).pod()
}

async fn comes_back(bench: &Bench, phase: &str) -> Result<()> {
    let refused = bench.create(&objects::pods(NAME), &old_pod(phase)).await?;
    ensure!(refused.code == 500, "a second owner would start: {refused:?}");
    // The node registers, tells that it lives, and gets its Pods; the webhook's own among them.
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("back-in-{}", phase.to_lowercase())}});
    bench.create("/api/v1/nodes", &node).await?.granted()?;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node["metadata"]["name"]}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    bench.create(leases, &lease).await?.granted()?;
    let mut own = Workload::new(OWN, &format!("webhook-{}", phase.to_lowercase())).pod();
    own["spec"]["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    own["spec"]["containers"] =
        json!([{"name": "webhook", "image": "outrigger-webhook:1", "securityContext": restricted}]);
    bench.create(&objects::pods(OWN), &own).await?.granted()?;
    bench
        .create(
            &objects::pods(NAME),
            &api_server_pod(&format!("apiserver-{}", phase.to_lowercase())),
        )
        .await?
        .granted()?;
    Ok(())
}

fn api_server_pod(name: &str) -> Value {
    let mut pod = Workload::api_server(NAME).pod();
    pod["metadata"]["name"] = json!(name);
    pod
}

/// The same Pod, tried again as controllers do, gets the form of the phase. Until the webhook has its first list it
/// answers that it is not ready, which is no admission either.
async fn heals(bench: &Bench, phase: &str) -> Result<()> {
    let start = tokio::time::Instant::now();
    let made = loop {
        let answer = bench.create(&objects::pods(NAME), &old_pod(phase)).await?;
        if answer.is_granted() {
            break answer.body;
        }
        ensure!(start.elapsed() < SOON, "still refused: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let line = line(&made);
    ensure!(flag(&line, "cloud-provider") == Some("external"), "{line:?}");
    ensure!(flag(&line, "enable-leader-migration").is_none(), "{line:?}");
    let path = format!(
        "{}/{}",
        objects::pods(NAME),
        made["metadata"]["name"].as_str().unwrap_or_default()
    );
    let now = json!({"gracePeriodSeconds": 0});
    review::send(&bench.admin, Method::DELETE, &path, Some(("application/json", &now)))
        .await?
        .granted()?;
    Ok(())
}
