//! Pods whose workload was written while the webhook was away, or that have none.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bench::Bench;
use crate::objects::{self, Workload, flag, has_undo, is_on, line};

pub async fn the_backstop_gives_the_phases_flags(bench: &Bench) -> Result<()> {
    // One namespace whose Pods may pass when the webhook is away, and one whose may not: there both entries ask.
    for (namespace, labels) in [
        ("pods", json!({})),
        ("guarded-pods", json!({"outrigger.dev/control-plane": "true"})),
    ] {
        bench.namespace(namespace, &labels).await?;
        bench.migration(namespace, json!({"phase": "Prepare"})).await?;
        let pods = objects::pods(namespace);
        let in_prepare = bench
            .create(&pods, &Workload::new(namespace, "in-prepare").pod())
            .await?
            .granted()?;
        let now = line(&in_prepare.body);
        ensure!(is_on(&now, "enable-leader-migration"), "{namespace}: {now:?}");
        ensure!(
            now.len() == Workload::new(namespace, "x").command.len() + 1,
            "twice asked, once changed: {now:?}"
        );
        ensure!(has_undo(&in_prepare.body), "{}", in_prepare.body);

        bench.change(namespace, json!({"phase": "Migrate"})).await?;
        let hasty = bench
            .create(&pods, &Workload::new(namespace, "hasty").pod())
            .await?
            .granted()?;
        ensure!(
            flag(&line(&hasty.body), "cloud-provider") == Some("aws"),
            "{}",
            hasty.body
        );
        ensure!(
            hasty.warnings.iter().any(|text| text.contains("not Prepared yet")),
            "{:?}",
            hasty.warnings
        );

        bench.set_prepared(namespace, "True").await?;
        let in_migrate = bench
            .create(&pods, &Workload::new(namespace, "in-migrate").pod())
            .await?
            .granted()?
            .body;
        ensure!(
            flag(&line(&in_migrate), "cloud-provider") == Some("external"),
            "{in_migrate}"
        );
        // A running Pod is a fact: no update changes it, whoever asks.
        let path = format!("{pods}/in-prepare");
        let asked = bench
            .merge(
                &path,
                &json!({"metadata": {"annotations": {objects::APPLY: format!("{namespace}/Migrate")}}}),
            )
            .await?;
        ensure!(line(&asked.body) == now && asked.warnings.is_empty(), "{asked:?}");
    }
    mirror_pods_are_pictures(bench).await
}

/// The object of a static Pod only shows a file on the node.
async fn mirror_pods_are_pictures(bench: &Bench) -> Result<()> {
    let mut mirror = Workload::new("guarded-pods", "mirror").pod();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "d41d8cd9"});
    mirror["spec"]["nodeName"] = json!("ip-10-0-0-9");
    let Some(spec) = mirror["spec"].as_object_mut() else {
        anyhow::bail!("a Pod without spec");
    };
    spec.remove("automountServiceAccountToken");
    let stored = bench
        .create(&objects::pods("guarded-pods"), &mirror)
        .await?
        .granted()?
        .body;
    ensure!(line(&stored) == line(&mirror), "{stored}");
    Ok(())
}
