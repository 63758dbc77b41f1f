//! Definitions of the kinds that are not built in: nothing but what the table of rules says of them, and `spec` as an
//! object with whatever fields.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_environment::{manifests, review};
use outrigger_webhook::decide::{Kind, kinds};
use serde_json::{Value, json};

use crate::bench::Bench;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/outrigger";

/// Several rows may be about one kind, each with versions of its own.
pub async fn install(bench: &Bench) -> Result<()> {
    let mut versions: BTreeMap<(&str, &str), (&Kind, BTreeSet<&str>)> = BTreeMap::new();
    for kind in kinds().filter(|kind| kind.group.contains('.') && kind.group != "storage.k8s.io") {
        let row = versions.entry((kind.group, kind.plural));
        row.or_insert((kind, BTreeSet::new())).1.extend(kind.versions);
    }
    let all: Vec<Value> = versions
        .values()
        .map(|(kind, versions)| definition(kind, versions))
        .collect();
    manifests::apply(&bench.admin, &all).await?;
    for (kind, versions) in versions.values() {
        for version in versions {
            let path = format!("/apis/{}/{version}/{}", kind.group, kind.plural);
            bench
                .until(&format!("{path} is served"), async || {
                    Ok(review::send(&bench.admin, Method::GET, &path, None)
                        .await
                        .is_ok_and(|answer| answer.is_granted()))
                })
                .await?;
        }
    }
    Ok(())
}

fn definition(kind: &Kind, versions: &BTreeSet<&str>) -> Value {
    let versions: Vec<&str> = versions.iter().copied().collect();
    manifests::open_definition(kind.group, kind.kind, kind.plural, kind.namespaced, &versions)
}

/// The patch for operators whose targets name kube-system: it is taken from the exclusions of every entry.
pub async fn open_kube_system(bench: &Bench) -> Result<()> {
    let mut registration = bench.read(REGISTRATION).await?;
    let mut opened = 0;
    for entry in registration["webhooks"].as_array_mut().context("no webhooks")? {
        let expressions = entry["namespaceSelector"]["matchExpressions"].as_array_mut();
        for expression in expressions.into_iter().flatten() {
            let excludes = expression["operator"] == "NotIn";
            if let Some(excluded) = expression["values"].as_array_mut().filter(|_| excludes) {
                excluded.retain(|name| name != "kube-system");
                opened += 1;
            }
        }
    }
    ensure!(opened > 0, "no entry leaves kube-system out");
    bench
        .merge(REGISTRATION, &json!({"webhooks": registration["webhooks"]}))
        .await?;
    Ok(())
}
