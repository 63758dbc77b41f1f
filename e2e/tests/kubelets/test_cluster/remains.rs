//! Objects in the cluster that `helm uninstall` leaves.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::Client;
use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::stored_objects;
use outrigger_e2e::test_nodes::SOON;

/// The objects that stay. The chart's README names each, with the reason.
const REMAINS: [&str; 6] = [
    // Helm never deletes the definitions of a chart: their objects would be deleted with them.
    "CustomResourceDefinition  cloudprovidermigrations.outrigger.dev",
    // The API server has one for each group and version of definitions.
    "APIService  v1alpha1.outrigger.dev",
    // Helm creates it for the release, and never deletes one. kube-controller-manager writes the two objects in it.
    "Namespace  outrigger-system",
    "ConfigMap outrigger-system kube-root-ca.crt",
    "ServiceAccount outrigger-system default",
    // A lease that managers create. Helm does not know it, and the next manager continues with its record.
    "Lease kube-system cloud-controller-manager",
];

/// The objects before the installation. The kubelet creates its Pods for the static ones of the control plane when the API server runs,
/// and its own lease ten seconds after that, so it waits for them.
pub async fn before_install(client: &Client, node: &str) -> Result<BTreeSet<String>> {
    let components = ["etcd", "kube-apiserver", "kube-controller-manager"];
    let pods = components.map(|component| format!("Pod kube-system {component}-{node}"));
    let expected = [&pods[..], &[format!("Lease kube-node-lease {node}")]].concat();
    let is_complete = async || -> Result<Option<BTreeSet<String>>> {
        let now = stored_objects::names(client).await?;
        Ok(expected.iter().all(|name| now.contains(name)).then_some(now))
    };
    Ok(until("the Pods and the lease of the kubelet", SOON, is_complete).await?)
}

/// Waits until nothing else is left, and nothing of `before` is missing.
pub async fn after_uninstall(client: &Client, before: &BTreeSet<String>) -> Result<()> {
    let expected: BTreeSet<String> = REMAINS.map(str::to_owned).into();
    let is_clean = async || -> Result<()> {
        let now = stored_objects::names(client).await?;
        let left: BTreeSet<_> = now.difference(before).cloned().collect();
        let missing: Vec<_> = before.difference(&now).collect();
        ensure!(
            left == expected && missing.is_empty(),
            "left {left:#?}, missing {missing:#?}"
        );
        Ok(())
    };
    Ok(until("the end of the chart's objects", SOON, is_clean).await?)
}

#[test]
fn the_readme_of_the_chart_names_what_stays() {
    let readme = std::fs::read_to_string(repository::root().join("charts/outrigger/README.md")).unwrap();
    let section = readme
        .split("\n## ")
        .find(|text| text.starts_with("Upgrade and uninstall"));
    let section = section.expect("the section about the removal");
    for object in REMAINS {
        let name = object.rsplit(' ').next().unwrap();
        assert!(section.contains(&format!("`{name}`")), "{object}");
    }
}
