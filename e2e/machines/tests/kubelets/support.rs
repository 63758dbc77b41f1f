//! Shared by the tests: Pods, and what a run may not leave behind on the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::wait::until;
use outrigger_machines::processes_below_cgroup;
use serde_json::{Value, json};

pub const SOON: Duration = Duration::from_secs(240);

/// Parts of the host that a run has to leave as they were. To be read outside of the network of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    sysctls: Sysctls,
    ip_forward: String,
    links: Vec<String>,
    mounts: Vec<String>,
}

pub type Sysctls = BTreeMap<&'static str, String>;

/// The settings of the host's kernel that kubelets write. No namespace has its own.
pub fn sysctls() -> Result<Sysctls> {
    let names = [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    ];
    let values = names
        .into_iter()
        .map(|name| Ok((name, read(&format!("/proc/sys/{name}"))?)));
    values.collect()
}

impl Host {
    pub fn now() -> Result<Self> {
        let links = Command::new("ip").args(["-brief", "link"]).output().context("ip")?;
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        // Other work on the host may create links and mounts of its own.
        let ours = |text: &str| {
            let ours = text.lines().filter(|line| line.contains("machine"));
            ours.map(str::to_owned).collect()
        };
        Ok(Self {
            sysctls: sysctls()?,
            ip_forward: read("/proc/sys/net/ipv4/ip_forward")?,
            links: ours(&links),
            mounts: ours(&read("/proc/self/mounts")?),
        })
    }
}

/// A run with this cgroup and folder left no process, cgroup or file.
pub fn is_gone(cgroup: &str, folder: &Path) -> Result<()> {
    ensure!(!cgroup.is_empty(), "no name of a cgroup");
    ensure!(
        processes_below_cgroup(cgroup)?.is_empty(),
        "processes are left below cgroup {cgroup}"
    );
    for hierarchy in fs::read_dir("/sys/fs/cgroup")?.flatten() {
        let left = hierarchy.path().join(cgroup);
        ensure!(!left.exists(), "{} is left", left.display());
    }
    ensure!(!folder.exists(), "{} is left", folder.display());
    let claim = Path::new("/run/outrigger-machines").join(cgroup);
    ensure!(!claim.exists(), "{} is left", claim.display());
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

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
