//! Everything that is stored in a cluster.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt};

/// Kind, namespace and name of each object of each resource that the API server serves, without Events: an API server
/// deletes them after an hour (`--event-ttl` of kube-apiserver).
///
/// # Errors
/// When a resource cannot be listed.
pub async fn names(client: &Client) -> Result<BTreeSet<String>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = BTreeSet::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) || resource.kind == "Event" {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let objects = api.list(&ListParams::default()).await.context(resource.kind.clone())?;
            found.extend(objects.into_iter().map(|object| {
                let namespace = object.namespace().unwrap_or_default();
                format!("{} {namespace} {}", resource.kind, object.name_any())
            }));
        }
    }
    Ok(found)
}
