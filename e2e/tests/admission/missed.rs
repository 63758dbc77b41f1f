//! Objects that were written during an outage of the webhook are reported in the migration's condition, an Event and a
//! metric, until they are written again.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bench::{Bench, MIGRATIONS, NEVER};
use crate::objects::{self, APPLY, Workload, has_undo};

const NAME: &str = "missed";
const CONDITION: &str = "ObjectsApplied";

pub async fn what_was_missed_shows_until_it_is_written_again(bench: &mut Bench) -> Result<()> {
    bench.check_every("1s").await?;
    bench.namespace(NAME, &json!({})).await?;
    bench.migration(NAME, json!({"phase": "Prepare"})).await?;
    wait_for(bench, "True").await.context("nothing is there yet")?;

    bench.kill_webhook().await?;
    let workload = Workload::new(NAME, "late");
    let stored = bench
        .create(&objects::deployments(NAME), &workload.deployment())
        .await?
        .granted()?
        .body;
    ensure!(!has_undo(&stored), "nobody was there to change it");
    bench.start_webhook_again().await?;

    let condition = wait_for(bench, "False").await?;
    let message = condition["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("Deployment missed/late") && message.contains("outrigger.dev/apply=missed/Prepare"),
        "{condition}"
    );
    ensure!(condition["reason"] == "Missed", "{condition}");
    let uid = &stored["metadata"]["uid"];
    bench
        .until("an Event on the object", async || tells(bench, uid).await)
        .await?;
    let series = r#"outrigger_webhook_objects_missed{kind="Deployment",reason="missed"}"#;
    bench
        .until("the metric counts it", async || {
            let text = bench.metrics().await?;
            Ok(text
                .lines()
                .any(|line| line.starts_with(series) && !line.ends_with(" 0")))
        })
        .await?;

    // As the condition says.
    let path = format!("{}/late", objects::deployments(NAME));
    let applied = bench
        .merge(&path, &json!({"metadata": {"annotations": {APPLY: "missed/Prepare"}}}))
        .await?;
    ensure!(has_undo(&applied.body), "{}", applied.body);
    wait_for(bench, "True").await.context("after it was written again")?;
    bench.check_every(NEVER).await
}

async fn wait_for(bench: &Bench, status: &str) -> Result<Value> {
    let mut last = Value::Null;
    bench
        .until(&format!("the condition is {status}"), async || {
            let migration = bench.read(&format!("{MIGRATIONS}/{NAME}")).await?;
            let conditions = migration["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let found = conditions.into_iter().find(|condition| condition["type"] == CONDITION);
            last = found.unwrap_or_default();
            Ok(last["status"] == status)
        })
        .await
        .with_context(|| format!("last seen: {last}"))?;
    Ok(last)
}

async fn tells(bench: &Bench, uid: &Value) -> Result<bool> {
    let events = bench.read(&format!("/api/v1/namespaces/{NAME}/events")).await?;
    let ours = |event: &&Value| event["involvedObject"]["uid"] == *uid && event["reason"] == "NotInPhase";
    let found: Vec<&Value> = events["items"].as_array().into_iter().flatten().filter(ours).collect();
    ensure!(found.len() <= 1, "one is enough: {found:?}");
    let says = |event: &&&Value| {
        let message = event["message"].as_str().unwrap_or_default();
        message.contains("--enable-leader-migration")
    };
    Ok(found.iter().any(|event| says(&event)))
}
