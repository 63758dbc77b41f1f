//! Definitions of provisioners' kinds, for one step: later steps install the published ones.

use anyhow::Result;
use http::Method;
use outrigger_environment::{manifests, review};
use serde_json::Value;

use crate::bench::Bench;
use crate::components::delete;

/// Installs the definitions, and waits until each version is served.
pub async fn serve(bench: &Bench, definitions: &[Value]) -> Result<()> {
    manifests::apply(&bench.admin, definitions).await?;
    for definition in definitions {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let (group, version, plural) = (
                text(&spec["group"]),
                text(&version["name"]),
                text(&spec["names"]["plural"]),
            );
            let path = format!("/apis/{group}/{version}/{plural}");
            bench
                .until(&format!("{path} is served"), async || {
                    let answer = review::send(&bench.admin, Method::GET, &path, None).await;
                    Ok(answer.is_ok_and(|answer| answer.is_granted()))
                })
                .await?;
        }
    }
    Ok(())
}

/// Deletes them, and with them all objects of their kinds.
pub async fn withdraw(bench: &Bench, definitions: &[Value]) -> Result<()> {
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        delete(bench, &path).await?;
        bench
            .until(&format!("{name} is gone"), async || {
                let answer = review::send(&bench.admin, Method::GET, &path, None).await?;
                Ok(answer.code == 404)
            })
            .await?;
    }
    Ok(())
}
