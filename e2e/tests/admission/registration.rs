//! The webhook reads its registration from the API server, and reports what the migrations lack in it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bench::{Bench, MIGRATIONS};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/outrigger";
const FAULTS: [&str; 3] = [
    "MutatingWebhookConfiguration outrigger, entry nodes.outrigger.dev: timeoutSeconds is 10; needed: at most 3",
    "entry workloads.outrigger.dev: entry is missing; needed: CREATE and UPDATE of deployments.apps",
    "entry pods-in-control-planes.outrigger.dev: caBundle is empty; needed: the CA that signs the served certificate",
];

pub async fn a_changed_registration_is_reported_until_it_is_repaired(bench: &Bench) -> Result<()> {
    shows(bench, &[]).await?;
    let good = bench.read(REGISTRATION).await?["webhooks"].take();

    let mut bad = good.clone();
    let entries = bad.as_array_mut().context("no webhooks")?;
    entries.retain(|entry| entry["name"] != "workloads.outrigger.dev");
    for entry in entries {
        if entry["name"] == "nodes.outrigger.dev" {
            entry["timeoutSeconds"] = json!(10);
        }
        if entry["name"] == "pods-in-control-planes.outrigger.dev" {
            // With a URL an empty bundle is no fault: it may be a public authority's.
            entry["clientConfig"] = json!({"service": {
                "name": "outrigger-webhook", "namespace": "outrigger-system", "path": "/mutate", "port": 443,
            }});
        }
    }
    bench.merge(REGISTRATION, &json!({"webhooks": bad})).await?;
    shows(bench, &FAULTS).await?;
    ensure!(bench.health("/readyz").await? == "ok\n", "the webhook is not ready");
    let metrics = bench.metrics().await?;
    for field in ["timeoutSeconds", "entry", "caBundle"] {
        let series = format!(
            "outrigger_webhook_registration_differences{{kind=\"MutatingWebhookConfiguration\",registration=\"outrigger\",field=\"{field}\"}} 1"
        );
        ensure!(metrics.contains(&series), "no {series}");
    }

    let message = condition(bench, "False").await?;
    ensure!(
        message.contains("entry nodes.outrigger.dev: timeoutSeconds is 10"),
        "{message}"
    );

    bench.merge(REGISTRATION, &json!({"webhooks": good})).await?;
    shows(bench, &[]).await?;
    condition(bench, "True").await.map(drop)
}

/// Waits for this status of the condition of every migration, and returns a message of it.
async fn condition(bench: &Bench, status: &str) -> Result<String> {
    let mut message = String::new();
    bench
        .until(&format!("WebhookRegistered is {status}"), async || {
            let list = bench.read(MIGRATIONS).await?;
            let migrations = list["items"].as_array().context("no list of migrations")?;
            let of = |migration: &Value| {
                let conditions = migration["status"]["conditions"].as_array().cloned();
                let mut conditions = conditions.into_iter().flatten();
                conditions.find(|condition| condition["type"] == "WebhookRegistered")
            };
            let found: Vec<Value> = migrations.iter().filter_map(of).collect();
            let first = found.first().unwrap_or(&Value::Null);
            message = first["message"].as_str().unwrap_or_default().to_owned();
            let all = !found.is_empty() && found.len() == migrations.len();
            Ok(all && found.iter().all(|condition| condition["status"] == status))
        })
        .await
        .with_context(|| format!("the last message: {message}"))?;
    Ok(message)
}

/// Exactly these faults.
async fn shows(bench: &Bench, faults: &[&str]) -> Result<()> {
    let what = format!("the webhook reports {} faults of its registration", faults.len());
    bench
        .until(&what, async || {
            let text = bench.health("/registration").await?;
            if faults.is_empty() {
                return Ok(text == "ok\n");
            }
            let lines = text.lines().count();
            Ok(lines == faults.len() && faults.iter().all(|fault| text.contains(fault)))
        })
        .await
}
