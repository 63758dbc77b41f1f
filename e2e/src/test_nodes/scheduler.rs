//! The control planes of `e2e/machines` have no scheduler: this one binds Pods to the Nodes that their affinity names,
//! or to the Node with the fewest Pods of the same name. It knows neither taints nor resources.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const NAME: &str = "app.kubernetes.io/name";

/// A running scheduler. Dropping it stops it.
pub struct Scheduler(JoinHandle<()>);

impl Scheduler {
    /// `nodes` are the names of the Nodes that it may use.
    pub fn start(client: Client, nodes: Vec<String>) -> Self {
        Self(tokio::spawn(async move {
            loop {
                // API servers restart in these tests.
                if let Err(error) = bind_all(&client, &nodes).await {
                    eprintln!("the scheduler tries again: {error:#}");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn bind_all(client: &Client, nodes: &[String]) -> Result<()> {
    let all = Api::<Pod>::all(client.clone());
    let unbound = all.list(&ListParams::default().fields("spec.nodeName=")).await?.items;
    for pod in unbound {
        let everywhere = all.list(&ListParams::default()).await?.items;
        let node = wanted(&pod).or_else(|| emptiest(&pod, &everywhere, nodes));
        let node = node.with_context(|| format!("no Node for Pod {}", pod.name_any()))?;
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding)
            .await?;
    }
    Ok(())
}

/// The controller of DaemonSets names a Node by its affinity.
fn wanted(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let name = fields.find(|field| field.key == "metadata.name")?;
    name.values.as_ref()?.first().cloned()
}

fn emptiest(pod: &Pod, all: &[Pod], nodes: &[String]) -> Option<String> {
    let on = |node: &&String| {
        let there = all.iter().filter(|other| {
            other.labels().get(NAME) == pod.labels().get(NAME)
                && other.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(*node)
                && other.metadata.deletion_timestamp.is_none()
        });
        there.count()
    };
    nodes.iter().min_by_key(on).cloned()
}
