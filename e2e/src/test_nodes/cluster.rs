//! Control planes whose kube-controller-managers are static Pods with the in-tree AWS provider.

use std::io;
use std::net::{self, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{User, client};
use outrigger_cluster_harness::wait::until;
use outrigger_environment::manifests;
use outrigger_machines::kubeadm::{Cluster, InTree};
use outrigger_machines::{Fleet, Machine};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::cloud::{Cloud, credentials};

pub const COMPONENT: &str = "kube-controller-manager";
/// A free port of loopback.
pub const LOOPBACK: (&str, u16) = ("127.0.0.1", 0);
/// For static Pods on a busy machine with two cores.
pub const SOON: Duration = Duration::from_secs(600);
/// A machine that is off does not answer.
const CONNECT: Duration = Duration::from_secs(2);

/// A cluster whose control planes are the machines of a [`Fleet`].
pub struct InTreeCluster {
    pub cluster: Cluster,
    /// By the endpoint of the control planes.
    pub client: Client,
    /// For the endpoint of the control planes.
    pub kubeconfig: PathBuf,
    pub cloud: Cloud,
    endpoints: Vec<Endpoint>,
}

impl InTreeCluster {
    /// A control plane on each machine. Kube-controller-managers and kubelets have the in-tree provider.
    ///
    /// # Errors
    /// When a component does not start.
    pub async fn start(fleet: &mut Fleet, cluster_id: &str) -> Result<Self> {
        let cloud = Cloud::start(fleet, cluster_id).await?;
        let variables = credentials("$(COMPONENT)").map(|(name, value)| (name.to_owned(), value));
        let in_tree = InTree {
            configuration: cloud.configuration.clone(),
            environment: variables.into(),
        };
        let cluster = fleet.create_control_planes(Some(&in_tree)).await?;

        let endpoint = Endpoint::start(net::TcpListener::bind(LOOPBACK)?, servers(fleet))?;
        let content = cluster.kubeconfig(&format!("https://{}", endpoint.address))?;
        let kubeconfig = fleet.folder().join("admin.conf");
        std::fs::write(&kubeconfig, content.to_string())?;
        Ok(Self {
            client: client(&content, &User::admin(), "outrigger-e2e").await?,
            cluster,
            kubeconfig,
            cloud,
            endpoints: vec![endpoint],
        })
    }

    /// A kubeconfig for the network that `listener` is in.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn publish(&mut self, fleet: &Fleet, listener: net::TcpListener) -> Result<Value> {
        let endpoint = Endpoint::start(listener, servers(fleet))?;
        let kubeconfig = self.cluster.kubeconfig(&format!("https://{}", endpoint.address))?;
        self.endpoints.push(endpoint);
        Ok(kubeconfig)
    }

    /// Writes the labels of the Nodes and the ConfigMap `kubeadm-config`, as kubeadm does, and further objects.
    ///
    /// # Errors
    /// When the API server does not accept them within ten minutes.
    pub async fn apply(&self, fleet: &Fleet, more: impl IntoIterator<Item = Value>) -> Result<()> {
        let label = "node-role.kubernetes.io/control-plane";
        let nodes = fleet.machines().iter().map(|machine| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name(), "labels": {label: ""}}})
        });
        let objects: Vec<_> = nodes.chain([kubeadm_config()]).chain(more).collect();

        // A new API server creates its namespaces some seconds after its start.
        let applied = async || manifests::apply(&self.client, &objects).await;
        Ok(until("labels of the Nodes and kubeadm-config", SOON, applied).await?)
    }

    /// Values of the chart. The profiles are those that its page names for kubeadm. Credentials in the environment stand
    /// for the role of the instance.
    pub fn chart_values(&self, cluster_id: &str) -> Value {
        let node = json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
        let variables = credentials("outrigger-manager");
        let variables = variables.map(|(name, value)| json!({"name": name, "value": value}));
        let environment: Vec<Value> = std::iter::once(node).chain(variables).collect();
        json!({
            "profiles": ["Nodes", "KubeadmConfig"],
            "clusterID": cluster_id,
            "cloudConfig": self.cloud.configuration,
            "manager": {"env": environment},
        })
    }

    /// Waits until the container of the kube-controller-manager of `machine` runs with `flag`, and without `missing`.
    ///
    /// # Errors
    /// When it does not within ten minutes.
    pub async fn runs_with(&self, machine: &Machine, flag: &str, missing: &str) -> Result<()> {
        self.component_runs_with(COMPONENT, machine, flag, missing).await
    }

    /// As [`InTreeCluster::runs_with`], of another static Pod.
    ///
    /// # Errors
    /// When it does not within ten minutes.
    pub async fn component_runs_with(
        &self,
        component: &str,
        machine: &Machine,
        flag: &str,
        missing: &str,
    ) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "kube-system");
        let name = format!("{component}-{}", machine.name());
        let runs = async || {
            let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
            let command = container
                .and_then(|container| container.command.clone())
                .unwrap_or_default();
            let statuses = pod
                .status
                .and_then(|status| status.container_statuses)
                .unwrap_or_default();
            let running = statuses
                .iter()
                .any(|status| status.ready && status.started == Some(true));
            let has = |wanted: &str| command.iter().any(|word| word == wanted);
            if running && has(flag) && !has(missing) {
                Ok(())
            } else {
                Err(format!("running: {running}, command: {command:?}"))
            }
        };
        Ok(until(&format!("{name} with {flag}"), SOON, runs).await?)
    }

    /// Waits until one of the machines holds a lease, and returns its position.
    ///
    /// # Errors
    /// When none does within ten minutes.
    pub async fn holder(&self, fleet: &Fleet, lease: &str) -> Result<usize> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-system");
        let holder = async || {
            let lease = leases.get(lease).await.map_err(|error| error.to_string())?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            // The identity is the host name, `_` and a random UUID.
            let host = holder.split('_').next().unwrap_or_default();
            let position = fleet.machines().iter().position(|machine| machine.name() == host);
            position.map(Some).ok_or(holder)
        };
        Ok(until(&format!("a holder of the lease {lease}"), SOON, holder).await?)
    }
}

fn servers(fleet: &Fleet) -> Vec<SocketAddr> {
    let machines = fleet.machines().iter();
    machines
        .map(|machine| SocketAddr::from((machine.address(), 6443)))
        .collect()
}

/// As `kubeadm init` writes it for a configuration with the in-tree provider.
fn kubeadm_config() -> Value {
    let configuration = "\
apiServer:
  extraArgs:
    authorization-mode: Node,RBAC
    cloud-provider: aws
  timeoutForControlPlane: 4m0s
apiVersion: kubeadm.k8s.io/v1beta3
certificatesDir: /etc/kubernetes/pki
clusterName: kubernetes
controllerManager:
  extraArgs:
    cloud-config: /etc/kubernetes/cloud.conf
    cloud-provider: aws
    configure-cloud-routes: \"false\"
dns: {}
etcd:
  local:
    dataDir: /var/lib/etcd
imageRepository: registry.k8s.io
kind: ClusterConfiguration
kubernetesVersion: v1.26.13
networking:
  dnsDomain: cluster.local
  serviceSubnet: 10.96.0.0/12
scheduler: {}
";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": configuration},
    })
}

/// The endpoint of several control planes (`controlPlaneEndpoint` of kubeadm): a balancer of TCP connections. Dropping it
/// ends its connections.
struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Each connection to `listener` goes to the first server that accepts it.
    fn start(listener: net::TcpListener, servers: Vec<SocketAddr>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, servers));
        Ok(Self { address, task })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, servers: Vec<SocketAddr>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(forward(client, servers.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut client: TcpStream, servers: Vec<SocketAddr>) {
    for server in servers {
        if let Ok(Ok(mut server)) = timeout(CONNECT, TcpStream::connect(server)).await {
            // An end of one side ends the other one.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
