//! One cluster: an API server with RBAC, a node that runs the managers' Pods as processes, workers, and simulated AWS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Api, Client};
use outrigger_aws_sim::{Caller, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, User, Version,
};
use outrigger_cluster_harness::kubelets::{self, Kubelet, NodeSpec};
use outrigger_cluster_harness::leases::{LeaseName, Recorder};
use outrigger_cluster_harness::pods::{Image, ImageTable, PodRunner, RunnerConfig};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_e2e::single_cluster::{has_address, kubelet_instance};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

use super::commands::Shell;
use super::incumbent;
use super::{INCUMBENT, OURS};

/// The node that runs Pods: instance 0 of the account.
const CONTROL_PLANE: &str = "control-plane";
pub const OUR_IMAGE: &str = "registry.example.com/outrigger";
const LIMIT: Duration = Duration::from_secs(120);

/// Fields drop in their order: callers before those that they call.
pub struct Cluster {
    pub shell: Shell,
    pub admin: Client,
    pub runner: PodRunner,
    pub leases: Recorder,
    pub proxy: Arc<Proxy>,
    pub moto: Moto,
    workers: Vec<Kubelet>,
    account: SeededAccount,
    _controllers: Process,
    api: ApiServer,
    _etcd: Etcd,
    run: RunFolder,
}

impl Cluster {
    /// Starts everything but managers, with two workers that wait for their initialization and two Services.
    pub async fn start(name: &'static str, service_range: &str) -> Result<Self> {
        let wanted = [
            Tool::Etcd,
            Tool::ApiServer126,
            Tool::ControllerManager126,
            Tool::MotoPython,
            Tool::AwsCloudControllerManager,
        ];
        let tools = Tools::load(&wanted).await?;
        let run = RunFolder::new(name)?;
        let path = run.path().to_owned();
        let moto = Moto::start(&tools, &path).await?;
        let account = SeededAccount::seed(&moto, "prod", 4).await?;
        let proxy = Arc::new(Proxy::start(&moto, &[], Some(&path.join("aws-calls.jsonl"))).await?);
        std::fs::write(path.join("cloud.conf"), account.cloud_config(proxy.url()))?;

        let etcd = Etcd::start(&tools, &path).await?;
        let mut options = ApiServerOptions::new("cluster", Version::V1_26, service_range);
        // Pods get no token, since these processes have no mounts, and no controller removes taints of new Nodes.
        options.extra_arguments = vec!["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned()];
        let api = ApiServer::start(&tools, &path, &etcd, &options).await?;
        let kubeconfig = api.kubeconfig(&User::admin())?;
        let admin = api.client(&User::admin(), "replace-test").await?;
        let instance = account.instances.first().context("no instance")?;
        create_node(&admin, &instance.provider_id()).await?;
        let mut cluster = Self {
            shell: Shell::new(path.join("shell"), kubeconfig.clone()).await?,
            leases: Recorder::start(&admin, LeaseName::defaults()),
            runner: runner(&tools, &api, &proxy, path.join("pods")).await?,
            _controllers: controllers(&tools, &api, path.join("controllers"))?,
            workers: Vec::new(),
            admin,
            proxy,
            moto,
            account,
            api,
            _etcd: etcd,
            run,
        };
        cluster.join(1).await?;
        cluster.join(2).await?;
        cluster.create_services().await?;
        Ok(cluster)
    }

    /// A worker whose kubelet waits for a cloud controller manager.
    pub async fn join(&mut self, index: usize) -> Result<()> {
        let instance = self.account.instances.get(index).context("no such instance")?;
        let spec = NodeSpec::external(&kubelet_instance(instance)).uninitialized();
        let config = kubelets::config(&self.api.kubeconfig(&User::admin())?).await?;
        self.workers.push(Kubelet::start(&config, spec).await?);
        Ok(())
    }

    async fn create_services(&self) -> Result<()> {
        let service = |name: &str, annotations: Value| {
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": "default", "annotations": annotations},
                "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
            })
        };
        let network = json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"});
        manifests::apply(
            &self.admin,
            &[service("classic", json!({})), service("network", network)],
        )
        .await
    }

    /// Flags that say where the cluster and AWS are, for a manager with the rights of a service account.
    pub fn flags(&self, account: &str) -> Result<Vec<String>> {
        let user = User::new(format!("system:serviceaccount:kube-system:{account}")).in_group("system:serviceaccounts");
        let kubeconfig = self.api.kubeconfig(&user)?;
        let path = kubeconfig.display();
        Ok(vec![
            format!("--kubeconfig={path}"),
            format!("--authentication-kubeconfig={path}"),
            format!("--authorization-kubeconfig={path}"),
            format!("--cloud-config={}", self.run.path().join("cloud.conf").display()),
            "--secure-port=0".to_owned(),
        ])
    }

    /// A client with the rights of the incumbent.
    pub async fn incumbents_account(&self) -> Result<Client> {
        let name = format!("system:serviceaccount:kube-system:{}", incumbent::ACCOUNT);
        let user = User::new(name).in_group("system:serviceaccounts");
        Ok(self.api.client(&user, "replace-test/rights").await?)
    }

    /// Waits until the workers are initialized and the Services have addresses.
    pub async fn wait_served(&self) -> Result<()> {
        let nodes = Api::<Node>::all(self.admin.clone());
        let services = Api::<Service>::default_namespaced(self.admin.clone());
        let look = async || {
            for worker in &self.workers {
                let spec = nodes.get(worker.name()).await?.spec.unwrap_or_default();
                let taints = spec.taints.unwrap_or_default();
                let waits = taints.iter().any(|taint| taint.key.ends_with("uninitialized"));
                ensure!(!waits && spec.provider_id.is_some(), "{} waits", worker.name());
            }
            for name in ["classic", "network"] {
                ensure!(has_address(&services.get(name).await?), "{name} has no address");
            }
            anyhow::Ok(())
        };
        Ok(wait::until("initialized Nodes and addresses", LIMIT, look).await?)
    }
}

fn controllers(tools: &Tools, api: &ApiServer, folder: PathBuf) -> Result<Process> {
    std::fs::create_dir_all(&folder)?;
    let manager = ManagementControllerManager {
        kubeconfig: api.kubeconfig(&User::admin())?,
        service_account_key: api.service_account_key(),
        certificate_folder: folder.clone(),
        port: free_port()?,
    };
    let program = tools.path(Tool::ControllerManager126)?;
    let launch = Launch::new("kube-controller-manager", program).arguments(manager.arguments());
    Ok(Process::start(&launch, &folder)?)
}

/// The Node that the managers run on.
async fn create_node(admin: &Client, provider_id: &str) -> Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": CONTROL_PLANE, "labels": {
            "node-role.kubernetes.io/control-plane": "", "node.kubernetes.io/exclude-from-external-load-balancers": "",
        }},
        "spec": {"providerID": provider_id},
    });
    manifests::apply(admin, &[node]).await
}

async fn runner(tools: &Tools, api: &ApiServer, proxy: &Arc<Proxy>, folder: PathBuf) -> Result<PodRunner> {
    std::fs::create_dir_all(&folder)?;
    let ours = Binaries::one(OURS)?;
    let theirs = tools.path(Tool::AwsCloudControllerManager)?;
    let images = [
        Image::new(OUR_IMAGE, OURS, ours),
        Image::new(incumbent::IMAGE, INCUMBENT, theirs),
    ];
    let images = images.map(|mut image| {
        // The access key comes from the runner, one for each process.
        for (name, value) in Caller::new("template").environment(proxy.url()) {
            if !name.starts_with("AWS_ACCESS") && !name.starts_with("AWS_SECRET") {
                image = image.environment(name, value);
            }
        }
        image
    });
    let callers = Arc::clone(proxy);
    let config = RunnerConfig {
        node: CONTROL_PLANE.to_owned(),
        namespaces: vec!["kube-system".to_owned()],
        images: ImageTable::new(images),
        folder,
        on_access_key: Arc::new(move |key, process| {
            callers.add_caller(&Caller {
                name: process.to_owned(),
                access_key_id: key.to_owned(),
            });
        }),
    };
    let cluster = kubelets::config(&api.kubeconfig(&User::admin())?).await?;
    Ok(PodRunner::start(&cluster, config).await?)
}
