//! The control planes that `kubeadm init` and `kubeadm join --control-plane` create: etcd, kube-apiserver and
//! kube-controller-manager as static Pods of each machine, in kubeadm's files.
//!
//! Differences: etcd uses no TLS, each component uses the API server of its own machine, the kubelets' certificates are
//! not requested but written, and there is neither scheduler nor kube-proxy.
//!
//! A kubelet becomes a Node by the files that `kubeadm join` writes, also with an API server of the harness.

mod manifests;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{ApiServer, Authority, User, client, service_account_keys};
use outrigger_cluster_harness::tools::Tool;
use outrigger_cluster_harness::wait::until;
use serde_json::{Value, json};

use crate::fleet::PAUSE;
use crate::{Fleet, HOST, Machine};

/// The cluster IP of the Service `kubernetes`.
pub const SERVICE: &str = "10.96.0.1";
const SERVICES: &str = "10.96.0.0/12";
const KUBELET_FLAGS: &str = " --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf";
/// Three control planes at once on a busy machine with two cores.
const START: Duration = Duration::from_secs(600);

/// The in-tree AWS provider of kube-controller-managers and kubelets. The kube-apiservers get its flag, too.
#[derive(Debug, Clone)]
pub struct InTree {
    /// The content of `/etc/kubernetes/cloud.conf`.
    pub configuration: String,
    /// Variables of the environment, for example credentials. In a value `$(COMPONENT)` is
    /// `kube-controller-manager` or `kubelet`, and `$(NODE_NAME)` the name of the Node.
    pub environment: Vec<(String, String)>,
}

impl InTree {
    fn environment_of(&self, component: &str) -> Vec<(String, String)> {
        let variables = self.environment.iter();
        let filled = variables.map(|(name, value)| (name.clone(), value.replace("$(COMPONENT)", component)));
        filled.collect()
    }
}

/// The file with the audit log of each kube-apiserver of a cluster with the in-tree AWS provider.
pub const AUDIT_LOG: &str = "/var/log/kubernetes/audit.log";

/// A cluster whose control planes are the machines of a [`Fleet`].
pub struct Cluster {
    authority: Authority,
}

impl Fleet {
    /// Imports the images, writes the files of kubeadm, and waits until each Node is Ready.
    ///
    /// # Errors
    /// When a file cannot be written, or a Node is not Ready within ten minutes.
    pub async fn create_control_planes(&self, cloud: Option<&InTree>) -> Result<Cluster> {
        for (name, program) in [
            (manifests::ETCD, Tool::Etcd),
            (manifests::API_SERVER, Tool::ApiServer126),
            (manifests::CONTROLLER_MANAGER, Tool::ControllerManager126),
        ] {
            self.import(name, program).await?;
        }

        let authority = Authority::new("kubernetes")?;
        let front_proxy = Authority::new("front-proxy-ca")?;
        let (private, public) = service_account_keys()?;
        for machine in self.machines() {
            let serving = authority.serving(&[SERVICE.parse()?, machine.address(), Ipv4Addr::LOCALHOST])?;
            let to_kubelets = User::new("kube-apiserver-kubelet-client").in_group("system:masters");
            let to_kubelets = authority.client(&to_kubelets)?;
            for (file, content) in [
                ("front-proxy-ca.crt", front_proxy.certificate()),
                ("apiserver.crt", &serving.certificate),
                ("apiserver.key", &serving.key),
                ("apiserver-kubelet-client.crt", &to_kubelets.certificate),
                ("apiserver-kubelet-client.key", &to_kubelets.key),
                ("sa.key", &private),
                ("sa.pub", &public),
            ] {
                machine.write(&format!("/etc/kubernetes/pki/{file}"), content)?;
            }

            let server = format!("https://{}:6443", machine.address());
            for (file, user) in [
                ("controller-manager.conf", User::kube_controller_manager()),
                ("admin.conf", User::new("kubernetes-admin").in_group("system:masters")),
            ] {
                machine.write_kubeconfig(&format!("/etc/kubernetes/{file}"), &server, &authority, &user)?;
            }

            manifests::write(machine, self.machines(), cloud)?;
            if let Some(cloud) = cloud {
                machine.write("/etc/default/kubelet", kubelet_environment(machine, cloud))?;
            }
            let flags = cloud.map_or("", |_| KUBELET_FLAGS);
            machine.join(&server, &authority, flags)?;
        }

        let cluster = Cluster { authority };
        for machine in self.machines() {
            cluster.ready(machine, self.machines().len()).await?;
        }
        Ok(cluster)
    }

    /// Starts the kubelets as Nodes of an API server of the harness, whose certificate has to contain [`HOST`].
    ///
    /// # Errors
    /// When a file cannot be written, or a machine is off.
    pub async fn join(&mut self, server: &ApiServer) -> Result<()> {
        let port = server.url().rsplit_once(':').map_or("", |(_, port)| port);
        let address = format!("{HOST}:{port}");
        for machine in self.machines_mut() {
            machine.api_server.clone_from(&address);
            for chain in ["PREROUTING", "OUTPUT"] {
                let rule =
                    format!("-t nat -R {chain} 1 -d {SERVICE} -p tcp --dport 443 -j DNAT --to-destination {address}");
                machine.iptables(&rule).await?;
            }
            machine.join(&format!("https://{address}"), server.authority(), "")?;
        }
        Ok(())
    }
}

impl Machine {
    /// Writes the files of the kubelet, which then starts. `flags` follow those of kubeadm.
    ///
    /// # Errors
    /// When a certificate cannot be issued, or a file cannot be written.
    pub(crate) fn join(&self, server: &str, authority: &Authority, flags: &str) -> Result<()> {
        let user = User::new(format!("system:node:{}", self.name())).in_group("system:nodes");
        self.write_kubeconfig("/etc/kubernetes/kubelet.conf", server, authority, &user)?;
        self.write("/etc/kubernetes/pki/ca.crt", authority.certificate())?;

        let flags = format!(
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock \
             --pod-infra-container-image={PAUSE}{flags}\"\n"
        );
        self.write("/var/lib/kubelet/kubeadm-flags.env", flags)?;
        // The last file: with it the kubelet starts.
        self.write("/var/lib/kubelet/config.yaml", self.configuration())
    }

    pub(crate) fn write_kubeconfig(&self, path: &str, server: &str, authority: &Authority, user: &User) -> Result<()> {
        self.write(path, authority.kubeconfig("kubernetes", server, user)?.to_string())
    }

    /// kubeadm's configuration, and what a machine needs that is no virtual machine: its own cgroup, which has no limits.
    fn configuration(&self) -> String {
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [Ipv4Addr::new(10, 96, 0, 10)],
            "clusterDomain": "cluster.local",
            "staticPodPath": "/etc/kubernetes/manifests",
            "fileCheckFrequency": "2s",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup()),
            "enforceNodeAllocatable": [],
            "failSwapOn": false,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        });
        configuration.to_string()
    }
}

fn kubelet_environment(machine: &Machine, cloud: &InTree) -> String {
    let variables = cloud.environment_of("kubelet").into_iter();
    let lines = variables.map(|(variable, value)| {
        let value = value.replace("$(NODE_NAME)", machine.name());
        format!("{variable}={value}\n")
    });
    lines.collect()
}

impl Cluster {
    /// A client of the API server of `machine`, with all rights.
    ///
    /// # Errors
    /// When its certificate cannot be issued.
    pub async fn client(&self, machine: &Machine) -> Result<Client> {
        let content = self.kubeconfig(&format!("https://{}:6443", machine.address()))?;
        Ok(client(&content, &User::admin(), "outrigger-e2e").await?)
    }

    /// A kubeconfig with all rights. The API servers' certificates have the addresses of their machines and of loopback.
    ///
    /// # Errors
    /// When its certificate cannot be issued.
    pub fn kubeconfig(&self, server: &str) -> Result<Value> {
        self.kubeconfig_of(&User::admin(), server)
    }

    /// A kubeconfig with a client certificate, as `kubeadm kubeconfig user` prints it.
    ///
    /// # Errors
    /// When the certificate cannot be issued.
    pub fn kubeconfig_of(&self, user: &User, server: &str) -> Result<Value> {
        Ok(self.authority.kubeconfig("kubernetes", server, user)?)
    }

    /// Waits until the API server of `machine` shows `count` Nodes that are Ready.
    ///
    /// # Errors
    /// When that takes more than ten minutes.
    pub async fn ready(&self, machine: &Machine, count: usize) -> Result<()> {
        let client = self.client(machine).await?;
        let what = format!(
            "{count} Nodes that are Ready, as the API server of {} shows them",
            machine.name()
        );
        Ok(until(&what, START, async || {
            ready_nodes(&client).await.map(|ready| ready.len() == count)
        })
        .await?)
    }
}

/// The names of the Nodes that are Ready.
///
/// # Errors
/// When the API server does not list them.
pub async fn ready_nodes(client: &Client) -> Result<Vec<String>> {
    let api = Api::<Node>::all(client.clone());
    let everything = ListParams::default();
    let nodes = tokio::time::timeout(Duration::from_secs(10), api.list(&everything)).await;
    let nodes = nodes.context("no list of Nodes within 10 s")??;
    let ready = nodes.items.into_iter().filter(|node| {
        let status = node.status.as_ref();
        let mut conditions = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    Ok(ready.filter_map(|node| node.metadata.name).collect())
}
