//! The control planes that `kubeadm init` and `kubeadm join --control-plane` create: etcd, kube-apiserver and
//! kube-controller-manager as static Pods of each machine, in kubeadm's files.
//!
//! Differences: etcd uses no TLS, each component uses the API server of its own machine, the kubelets' certificates are
//! not requested but written, and there is neither scheduler nor kube-proxy.

mod manifests;

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{Authority, User, client, kubeconfig, service_account_keys};
use outrigger_cluster_harness::tools::Tool;
use outrigger_cluster_harness::wait::until;

use crate::{Fleet, Image, Machine};

/// The cluster IP of the Service `kubernetes`.
pub const SERVICE: &str = "10.96.0.1";
const SERVICES: &str = "10.96.0.0/12";
/// Three control planes at once on a busy machine with two cores.
const START: Duration = Duration::from_secs(600);

/// The in-tree AWS provider of the kube-controller-managers.
#[derive(Debug, Clone)]
pub struct InTree {
    /// The content of `/etc/kubernetes/cloud.conf`.
    pub configuration: String,
    /// Variables of the environment, for example credentials.
    pub environment: Vec<(String, String)>,
}

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
        for (name, tool) in [
            (manifests::ETCD, Tool::Etcd),
            (manifests::API_SERVER, Tool::ApiServer126),
            (manifests::CONTROLLER_MANAGER, Tool::ControllerManager126),
        ] {
            self.import(&Image::new(name, self.tools().path(tool)?)).await?;
        }

        let authority = Authority::new("kubernetes")?;
        let front_proxy = Authority::new("front-proxy-ca")?;
        let (private, public) = service_account_keys()?;
        for machine in self.machines() {
            let serving = authority.serving(&[SERVICE.parse()?, machine.address()])?;
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
            machine.join(&server, &authority)?;
        }

        let cluster = Cluster { authority };
        for machine in self.machines() {
            cluster.ready(machine, self.machines().len()).await?;
        }
        Ok(cluster)
    }
}

impl Cluster {
    /// A client of the API server of `machine`, with all rights.
    ///
    /// # Errors
    /// When its certificate cannot be issued.
    pub async fn client(&self, machine: &Machine) -> Result<Client> {
        let user = User::admin();
        let server = format!("https://{}:6443", machine.address());
        let credentials = self.authority.client(&user)?;
        let content = kubeconfig(
            "kubernetes",
            &server,
            self.authority.certificate(),
            user.name(),
            &credentials,
        );
        Ok(client(&content, &user, "outrigger-e2e").await?)
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
