//! Three control planes whose kube-controller-managers are static Pods with the in-tree AWS provider.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use outrigger_aws_sim::{InstanceMetadata, Moto, Proxy, REGION, SeededAccount};
use outrigger_cluster_harness::cluster::{User, client};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_environment::manifests;
use outrigger_machines::kubeadm::{Cluster, InTree};
use outrigger_machines::{Fleet, HOST, Machine};

use crate::endpoint::Endpoint;

pub const COMPONENT: &str = "kube-controller-manager";
pub const SOON: Duration = Duration::from_secs(600);

/// The programs on the machines call AWS with an access key of their own, which names component and Node.
const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "not-a-secret-the-simulation-checks-no-signature";

pub struct InTreeCluster {
    pub cluster: Cluster,
    /// By the endpoint of the control planes.
    pub client: Client,
    /// For the endpoint of the control planes.
    pub kubeconfig: PathBuf,
    pub cloud: Cloud,
    _endpoint: Endpoint,
}

/// A simulated AWS account with an instance for each machine.
pub struct Cloud {
    pub account: SeededAccount,
    pub proxy: Proxy,
    pub moto: Moto,
    /// The content of the file of `--cloud-config`.
    pub configuration: String,
    _metadata: InstanceMetadata,
}

impl Cloud {
    async fn start(fleet: &mut Fleet, cluster_id: &str) -> Result<Self> {
        let tools = Tools::load(&[Tool::MotoPython]).await?;
        let moto = Moto::start(&tools, fleet.folder()).await?;
        let calls = fleet.folder().join("aws.jsonl");
        let proxy = Proxy::start(&moto, &[], Some(&calls)).await?;
        proxy.set_limits(true);

        let mut account = SeededAccount::seed(&moto, cluster_id, 0).await?;
        for machine in fleet.machines() {
            let instance = account.add_instance_at(&moto, &machine.address().to_string()).await?;
            ensure!(
                instance.private_dns_name == machine.name(),
                "instance {} of {}",
                instance.private_dns_name,
                machine.name()
            );
        }
        let metadata = InstanceMetadata::start(&account).await?;
        for machine in fleet.machines_mut() {
            machine.lead_metadata_to(format!("{HOST}:{}", metadata.port())).await?;
        }

        // For the machines loopback is at another address.
        let endpoint = proxy.url().replace("127.0.0.1", &HOST.to_string());
        Ok(Self {
            configuration: account.cloud_config_of_instances(&endpoint),
            account,
            proxy,
            moto,
            _metadata: metadata,
        })
    }
}

/// Credentials, which stand for the role of the instance.
pub fn credentials(component: &str) -> [(&'static str, String); 3] {
    [
        (ACCESS_KEY, format!("{component}-$(NODE_NAME)")),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
    ]
}

impl InTreeCluster {
    /// Three control planes, whose kube-controller-managers and kubelets have the in-tree provider.
    pub async fn start(fleet: &mut Fleet, cluster_id: &str) -> Result<Self> {
        let cloud = Cloud::start(fleet, cluster_id).await?;
        let variables = credentials("$(COMPONENT)").map(|(name, value)| (name.to_owned(), value));
        let in_tree = InTree {
            configuration: cloud.configuration.clone(),
            environment: variables.into(),
        };
        let cluster = fleet.create_control_planes(Some(&in_tree)).await?;

        let servers = fleet.machines().iter();
        let servers = servers.map(|machine| SocketAddr::from((machine.address(), 6443)));
        let endpoint = Endpoint::start(servers.collect()).await?;
        let content = cluster.kubeconfig(&format!("https://{}", endpoint.address()))?;
        let kubeconfig = fleet.folder().join("admin.conf");
        std::fs::write(&kubeconfig, content.to_string())?;
        Ok(Self {
            client: client(&content, &User::admin(), "outrigger-e2e").await?,
            cluster,
            kubeconfig,
            cloud,
            _endpoint: endpoint,
        })
    }

    /// Waits until the container of the kube-controller-manager of `machine` runs with `flag`, and without `missing`.
    pub async fn runs_with(&self, machine: &Machine, flag: &str, missing: &str) -> Result<()> {
        self.component_runs_with(COMPONENT, machine, flag, missing).await
    }

    /// As [`InTreeCluster::runs_with`], of another static Pod.
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

/// The rights in kube-system that the manifests grant: without them no kube-controller-manager acquires the migration
/// lease.
pub async fn install_rights(fleet: &Fleet, client: &Client) -> Result<()> {
    let tools = Tools::load(&[Tool::Kustomize]).await?;
    let mut objects = manifests::render(&tools, fleet.folder(), "rights", "base", "").await?;
    objects.retain(|object| ["Role", "RoleBinding"].iter().any(|kind| object["kind"] == *kind));
    objects.retain(|object| object["metadata"]["namespace"] == "kube-system");
    ensure!(objects.len() >= 2, "{} objects", objects.len());
    manifests::apply(client, &objects).await
}
