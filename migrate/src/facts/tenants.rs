//! Reads the control planes that a cluster hosts: the Pods that targets of profile HostedControlPlane select.

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use outrigger_shared::migration::{Candidate, Profile, Selected, Target};
use serde::Deserialize;

use super::collect::{CONCURRENT, Reader, encoded, locks_of};
use super::nodes::Metadata;
use super::{Component, Migration, NotRead, Tenant, components};

/// An object of which only the metadata is kept.
#[derive(Deserialize)]
struct Namespace {
    #[serde(default)]
    metadata: Metadata,
}

/// The tenants of the migrations, by name.
pub(super) async fn read(reader: &Reader, migrations: Result<&[Migration], &NotRead>) -> Result<Vec<Tenant>, NotRead> {
    let is_host = |migration: &&Migration| !targets(migration).is_empty();
    let hosted: Vec<&Migration> = migrations.map_err(Clone::clone)?.iter().filter(is_host).collect();
    if hosted.is_empty() {
        return Ok(Vec::new());
    }

    let namespaces = reader.list("namespaces", "/api/v1/namespaces", Some::<Namespace>).await;
    let namespaces = namespaces.map_err(|failed| failed.of("namespaces"))?;
    let mut tenants = Vec::new();
    for migration in hosted {
        tenants.push(tenant(reader, migration, &namespaces).await);
    }
    tenants.sort_by(|left, right| left.migration.cmp(&right.migration));

    Ok(tenants)
}

/// The targets of a migration that select a control plane of another cluster.
fn targets(migration: &Migration) -> Vec<&Target> {
    let is_hosted = |target: &&Target| target.profile == Profile::HostedControlPlane && target.hosts_a_control_plane();
    migration.targets.iter().filter(is_hosted).collect()
}

async fn tenant(reader: &Reader, migration: &Migration, namespaces: &[Namespace]) -> Tenant {
    let targets = targets(migration);
    let is_selected = |Namespace { metadata }: &&Namespace| {
        let selects =
            |target: &&Target| target.selects_namespace(&metadata.name, Some(&metadata.labels), None) == Selected::Yes;
        targets.iter().any(selects)
    };
    let selected: Vec<&Namespace> = namespaces.iter().filter(is_selected).collect();

    let reads = selected
        .iter()
        .map(|namespace| components_of(reader, migration, &targets, namespace));
    let reads: Vec<Result<Vec<Component>, NotRead>> = futures::stream::iter(reads).buffered(CONCURRENT).collect().await;
    let components: Result<Vec<Vec<Component>>, NotRead> = reads.into_iter().collect();
    Tenant {
        migration: migration.name.clone(),
        namespaces: selected
            .iter()
            .map(|namespace| namespace.metadata.name.clone())
            .collect(),
        components: components.map(|all| all.into_iter().flatten().collect()).into(),
    }
}

async fn components_of(
    reader: &Reader,
    migration: &Migration,
    targets: &[&Target],
    Namespace { metadata }: &Namespace,
) -> Result<Vec<Component>, NotRead> {
    let locks = locks_of(migration);
    let of_pod = |pod: DynamicObject| {
        let candidate = Candidate {
            namespace: Some(&metadata.name),
            namespace_labels: Some(&metadata.labels),
            labels: pod.labels(),
            own_namespace: None,
        };
        // The manager runs beside the control plane.
        let mut all = components::of_pod(&pod, None, &locks);
        let is_selected = targets.iter().any(|target| target.selects(&candidate) == Selected::Yes);
        all.retain(|component| is_selected || component.is_outrigger);
        Some(all).filter(|all| !all.is_empty())
    };

    let what = format!("pods in {}", metadata.name);
    let path = format!("/api/v1/namespaces/{}/pods", encoded(&metadata.name));
    let all = reader.list(&what, &path, of_pod).await;
    Ok(all.map_err(|failed| failed.of(&what))?.into_iter().flatten().collect())
}
