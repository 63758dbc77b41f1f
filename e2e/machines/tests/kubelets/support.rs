//! Shared by the tests: Pods.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::wait::until;
use serde_json::{Value, json};

pub const SOON: Duration = Duration::from_secs(240);

/// A Pod that runs the sandbox's program for ever, as a manifest.
pub fn sleeper(name: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"app": name}},
        "spec": {"hostNetwork": true, "containers": [{
            "name": "sleeper", "image": "registry.k8s.io/pause:3.9", "imagePullPolicy": "Never",
        }]},
    })
    .to_string()
}

/// A Pod that reads the version of the API server, and ends.
pub fn probe(name: &str, node: &str, host_network: bool, arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "hostNetwork": host_network, "restartPolicy": "Never",
            "securityContext": {"runAsUser": 65532, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "probe", "image": "outrigger.dev/probe:1", "imagePullPolicy": "Never", "args": arguments,
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

/// Creates a Pod. Its namespace may be so new that its service account does not exist yet.
pub async fn create(client: &Client, pod: &Value) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let pod: Pod = serde_json::from_value(pod.clone())?;
    let created = async || pods.create(&PostParams::default(), &pod).await.map(drop);
    Ok(until("a created Pod", SOON, created).await?)
}

/// The termination message of the only container of a Pod that succeeded.
pub async fn message(client: &Client, name: &str) -> Result<String> {
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let message = async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.clone().unwrap_or_default();
        let ended = status.phase.as_deref() == Some("Succeeded");
        let state = container(&pod).and_then(|container| container.state);
        let message = state.and_then(|state| state.terminated?.message);
        match message {
            Some(message) if ended => Ok(Some(message)),
            _ => Err(json!(status).to_string()),
        }
    };
    Ok(until(&format!("the result of Pod {name}"), SOON, message).await?)
}

/// Waits for a mirror Pod whose container runs, is not the container `unlike`, and returns its ID.
pub async fn running(client: &Client, name: &str, unlike: Option<&str>) -> Result<String> {
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let id = async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        if !annotations.contains_key("kubernetes.io/config.mirror") {
            return Err(format!("{name} is no mirror Pod"));
        }
        let container =
            container(&pod).filter(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()));
        let id = container.and_then(|container| container.container_id);
        match id {
            Some(id) if unlike != Some(id.as_str()) => Ok(Some(id)),
            _ => Err(json!(pod.status).to_string()),
        }
    };
    Ok(until(&format!("a running container of Pod {name}"), SOON, id).await?)
}

fn container(pod: &Pod) -> Option<ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned()
}
