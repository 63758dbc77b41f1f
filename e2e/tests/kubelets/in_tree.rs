//! Three control planes whose kube-controller-managers are static Pods with the in-tree AWS provider.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use outrigger_aws_sim::{Caller, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_environment::manifests;
use outrigger_machines::kubeadm::{Cluster, InTree};
use outrigger_machines::{Fleet, HOST, Machine};

pub const COMPONENT: &str = "kube-controller-manager";
pub const SOON: Duration = Duration::from_secs(300);

pub struct InTreeCluster {
    pub cluster: Cluster,
    pub client: Client,
    _proxy: Proxy,
    _moto: Moto,
}

impl InTreeCluster {
    pub async fn start(fleet: &Fleet) -> Result<Self> {
        let tools = Tools::load(&[Tool::MotoPython, Tool::Kustomize]).await?;
        let moto = Moto::start(&tools, fleet.folder()).await?;
        let account = SeededAccount::seed(&moto, "kubernetes", 3).await?;
        let caller = Caller::new(COMPONENT);
        let calls = fleet.folder().join("aws.jsonl");
        let proxy = Proxy::start(&moto, std::slice::from_ref(&caller), Some(&calls)).await?;

        // For the machines loopback is at another address.
        let endpoint = proxy.url().replace("127.0.0.1", &HOST.to_string());
        let cloud = InTree {
            configuration: account.cloud_config(&endpoint),
            environment: caller.environment(&endpoint),
        };
        let cluster = fleet.create_control_planes(Some(&cloud)).await?;
        let first = fleet.machines().first().context("no machine")?;
        let client = cluster.client(first).await?;
        install_rights(fleet, &tools, &client).await?;
        Ok(Self {
            cluster,
            client,
            _proxy: proxy,
            _moto: moto,
        })
    }

    /// Waits until the container of the kube-controller-manager of `machine` runs with `flag`, and without `missing`.
    pub async fn runs_with(&self, machine: &Machine, flag: &str, missing: &str) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "kube-system");
        let name = format!("{COMPONENT}-{}", machine.name());
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
async fn install_rights(fleet: &Fleet, tools: &Tools, client: &Client) -> Result<()> {
    let mut objects = manifests::render(tools, fleet.folder(), "rights", "base", "").await?;
    objects.retain(|object| ["Role", "RoleBinding"].iter().any(|kind| object["kind"] == *kind));
    objects.retain(|object| object["metadata"]["namespace"] == "kube-system");
    ensure!(objects.len() >= 2, "{} objects", objects.len());
    manifests::apply(client, &objects).await
}
