//! How often API servers call the webhook for one Pod: once where they evaluate `matchConditions`, whatever labels and
//! namespace it has.

use anyhow::{Result, ensure};
use outrigger_cluster_harness::cluster::Version;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::objects::{self, Workload};

/// A Pod of a kube-controller-manager with three labels that say so, and of a kube-apiserver, in a namespace of control
/// planes and in another one.
pub async fn one_for_each_pod(bench: &Bench) -> Result<()> {
    for (namespace, labels) in [
        ("calls-guarded", json!({"outrigger.dev/control-plane": "true"})),
        ("calls-ordinary", json!({})),
    ] {
        bench.namespace(namespace, &labels).await?;
        for (workload, component) in [
            (Workload::new(namespace, "manager"), "kube-controller-manager"),
            (Workload::api_server(namespace), "kube-apiserver"),
        ] {
            let mut pod = workload.pod();
            for key in ["app", "component", "k8s-app"] {
                pod["metadata"]["labels"][key] = Value::from(component);
            }

            let before = calls(bench).await?;
            bench.create(&objects::pods(namespace), &pod).await?.granted()?;
            let made = calls(bench).await? - before;

            println!("{:?}: {made} calls for a {component} in {namespace}", bench.version);
            // Older API servers know no "one of these labels", so they send the Pod for each label.
            let most = if bench.version == Version::V1_36 { 1 } else { 4 };
            ensure!(
                (1..=most).contains(&made),
                "{made} calls for a {component} in {namespace}"
            );
        }
    }

    Ok(())
}

/// Calls of entries for Pods.
async fn calls(bench: &Bench) -> Result<u64> {
    let metrics = bench.metrics_of_the_api_server().await?;
    let counts = metrics.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_request_total{")
            && line.contains("pods")
            && line.contains("outrigger.dev")
    });
    let counts = counts.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>());
    let sum: f64 = counts.sum::<Result<f64, _>>()?;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    Ok(sum as u64)
}
