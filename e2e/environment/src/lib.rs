//! The environment of a migration: two real control planes, simulated AWS, the webhook, and everything that records.
//!
//! ```text
//! etcd ─┬─ kube-apiserver "management" ── kube-controller-manager (no cloud) ── pod runner ─▶ processes
//!       │        ▲  Deployments of the tenant's control plane, CloudProviderMigration
//!       │        └─ outrigger-webhook ◀── also reviews the tenant's new Nodes
//!       └─ kube-apiserver "tenant" ◀── kubelets that play, Services, leases K, C, M
//! moto ◀── proxy ◀── every process, each with an access key of its own
//! ```

mod apply;
mod binaries;
pub mod demo;
mod faults;
mod install;
pub mod load;
pub mod manifests;
mod observe;
pub mod operator;
mod principals;
pub mod prove;
pub mod review;
mod settle;
mod static_pods;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Client;

use outrigger_aws_sim::{Caller, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, TenantControllerManager, User, Version,
};
use outrigger_cluster_harness::kubelets::{self, Kubelet, NodeSpec};
use outrigger_cluster_harness::leases::{LeaseName, Recorder};
use outrigger_cluster_harness::loopback::expect_ok;
use outrigger_cluster_harness::pods::{Image, ImageTable, PodRunner, RunnerConfig};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_timeline::{Marker, Pause, Snapshot};
use static_pods::StaticPods;

pub use binaries::{Binaries, manager_flags};
pub use observe::{Statuses, identifiers, load_balancers};
pub use settle::Progress;

/// The cluster's ID in its AWS tags, and the name of its `CloudProviderMigration`.
pub const CLUSTER: &str = "prod";
/// The namespace of the tenant's control plane in the management cluster.
pub const CONTROL_PLANE: &str = "tenant-prod";
/// The address of the webhook's Service: every 127/8 address is local, so a cluster IP can be listened on.
const WEBHOOK_ADDRESS: &str = "127.96.0.10";
/// The node of the pod runner.
const RUNNER_NODE: &str = "runner";

/// Everything that stands. Dropping it ends every process.
pub struct Environment {
    /// The folder of this run: kubeconfigs, logs, records.
    pub run: PathBuf,
    tools: Tools,
    binaries: Binaries,
    pub account: SeededAccount,
    pub moto: Moto,
    /// Records every call to `moto`.
    pub proxy: Arc<Proxy>,
    management: ApiServer,
    tenant: ApiServer,
    /// Runs the control plane's Pods.
    pub runner: PodRunner,
    /// The tenant's Nodes.
    pub kubelets: Vec<Kubelet>,
    /// Records the three leases.
    pub leases: Recorder,
    pub management_admin: Client,
    tenant_admin: Client,
    webhook_port: u16,
    webhook: Option<Process>,
    /// The PEM of the CA that signed the webhook's certificate.
    webhook_authority: String,
    markers: Mutex<Vec<Marker>>,
    snapshots: Mutex<Vec<Snapshot>>,
    pauses: Mutex<Vec<Pause>>,
    statuses: Statuses,
    static_pods: StaticPods,
    _management_controllers: Process,
    etcd: Etcd,
}

/// The tools of `e2e/tools` that an environment needs.
pub const TOOLS: [Tool; 5] = [
    Tool::ApiServer126,
    Tool::ControllerManager126,
    Tool::Etcd,
    Tool::Kustomize,
    Tool::MotoPython,
];

impl Environment {
    /// Builds the environment in `run`: empty control planes, an account with `instances` machines, no webhook yet.
    ///
    /// # Errors
    /// When a component does not start; the message names it and shows the end of its log.
    pub async fn build(run: &Path, instances: usize, extra: &[Tool], progress: &Progress) -> Result<Self> {
        Self::build_with(run, instances, extra, false, progress).await
    }

    /// As [`Environment::build`]. With `node_restriction`, a kubelet of the tenant may write its own Node and Pods only.
    pub(crate) async fn build_with(
        run: &Path,
        instances: usize,
        extra: &[Tool],
        node_restriction: bool,
        progress: &Progress,
    ) -> Result<Self> {
        let wanted: Vec<Tool> = TOOLS.iter().chain(extra).copied().collect();
        let tools = Tools::load(&wanted).await?;
        let binaries = Binaries::find()?;
        progress.say("starting moto (the simulated AWS) and the proxy that records every call");

        let moto = Moto::start(&tools, run).await?;
        let account = SeededAccount::seed(&moto, CLUSTER, instances).await?;
        let proxy = Arc::new(Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await?);
        proxy.set_limits(true);
        progress.say("starting etcd and two kube-apiservers 1.26: management and tenant");

        let etcd = Etcd::start(&tools, run).await?;
        let options = |name, range| ApiServerOptions::new(name, Version::V1_26, range);
        let management = ApiServer::start(&tools, run, &etcd, &options("management", "127.96.0.0/16")).await?;
        let tenant_options = match options("tenant", "127.97.0.0/16") {
            options if node_restriction => options.node_restriction(),
            options => options,
        };
        let tenant = ApiServer::start(&tools, run, &etcd, &tenant_options).await?;
        let controllers = management_controllers(&tools, run, &management)?;
        let management_admin = management.client(&User::admin(), "e2e-admin").await?;
        let tenant_admin = tenant.client(&User::admin(), "e2e-admin").await?;
        let runner = pod_runner(run, &tools, &binaries, &management, &proxy).await?;
        let leases = Recorder::start(&tenant_admin, LeaseName::defaults());

        Ok(Self {
            run: run.to_owned(),
            webhook_port: free_port()?,
            webhook: None,
            webhook_authority: manifests::issue_webhook_certificate(&run.join("webhook-certs"), WEBHOOK_ADDRESS)?,
            kubelets: Vec::new(),
            markers: Mutex::default(),
            snapshots: Mutex::default(),
            pauses: Mutex::default(),
            statuses: Statuses::start(&management_admin, CLUSTER),
            static_pods: StaticPods::default(),
            _management_controllers: controllers,
            etcd,
            tools,
            binaries,
            account,
            moto,
            proxy,
            management,
            tenant,
            runner,
            leases,
            management_admin,
            tenant_admin,
        })
    }

    /// A Node whose kubelet still has the in-tree provider.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn join_in_tree(&mut self, index: usize) -> Result<()> {
        let spec = NodeSpec::in_tree(&self.instance(index)?);
        self.join(spec).await
    }

    /// A Node whose kubelet is external and does not set the taint itself: the webhook does.
    pub(crate) async fn join_external(&mut self, index: usize) -> Result<()> {
        let spec = NodeSpec::external(&self.instance(index)?);
        self.join(spec).await
    }

    async fn join(&mut self, spec: NodeSpec) -> Result<()> {
        let config = kubelets::config(&self.tenant.kubeconfig(&User::admin())?).await?;
        self.kubelets.push(Kubelet::start(&config, spec).await?);
        Ok(())
    }

    fn instance(&self, index: usize) -> Result<kubelets::Instance> {
        let machine = self.account.instances.get(index).context("no such instance")?;
        Ok(machine.clone())
    }

    /// The flags of the tenant's old kube-controller-manager in its original form. Their files are written.
    pub(crate) fn old_manager_flags(&self) -> Result<Vec<String>> {
        let home = self.run.join("tenant-kcm");
        std::fs::create_dir_all(&home)?;

        let manager = TenantControllerManager {
            kubeconfig: self.tenant.kubeconfig(&User::kube_controller_manager())?,
            cloud_config: self.cloud_config()?,
            cluster_name: CLUSTER.to_owned(),
            service_account_key: self.tenant.service_account_key(),
            certificate_folder: home,
            // Old and new Pods of a rollout run at the same time on one host: no port can be fixed.
            port: 0,
            leader_migration: false,
        };
        Ok(manager.arguments())
    }

    /// One cloud config for both sides: theirs reads its spelling of the services' names, ours both.
    fn cloud_config(&self) -> Result<PathBuf> {
        let path = self.run.join("cloud.conf");
        std::fs::write(&path, self.account.cloud_config(self.proxy.url()))?;
        Ok(path)
    }

    /// Starts the webhook. Its rights must be installed: without them it is not ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_webhook(&mut self) -> Result<()> {
        let folder = self.run.join("webhook-certs");
        let user =
            User::new("system:serviceaccount:outrigger-system:outrigger-webhook").in_group("system:serviceaccounts");
        let guest = User::new("outrigger-webhook");
        let health = free_port()?;
        let launch = Launch::new("outrigger-webhook", &self.binaries.webhook).arguments([
            format!("--bind-address={WEBHOOK_ADDRESS}:{}", self.webhook_port),
            format!("--health-bind-address=127.0.0.1:{health}"),
            format!("--cert-dir={}", folder.display()),
            "--server-name=outrigger-webhook.outrigger-system.svc".to_owned(),
            "--shutdown-delay=0s".to_owned(),
            format!("--kubeconfig={}", self.management.kubeconfig(&user)?.display()),
            format!(
                "--cluster-kubeconfig={CLUSTER}={}",
                self.tenant.kubeconfig(&guest)?.display()
            ),
        ]);

        let process = Process::start(&launch, &self.run)?;
        let url = format!("http://127.0.0.1:{health}/readyz");

        process
            .ready("be ready", Duration::from_secs(60), async || expect_ok(&url).await)
            .await?;
        self.webhook = Some(process);

        Ok(())
    }

    /// Stops the webhook, as an outage would.
    pub(crate) async fn stop_webhook(&mut self) -> Result<()> {
        if let Some(process) = self.webhook.take() {
            process.stop(Duration::from_secs(10)).await?;
        }
        Ok(())
    }

    /// How to look at what runs, with tools that the reader has.
    ///
    /// # Errors
    /// When a kubeconfig cannot be written.
    pub fn how_to_look(&self) -> Result<String> {
        let management = self.management.kubeconfig(&User::admin())?;
        let tenant = self.tenant.kubeconfig(&User::admin())?;
        let (management, tenant, run) = (management.display(), tenant.display(), self.run.display());
        Ok(format!(
            "Everything is still running. Look at it with:\n\n  \
             kubectl --kubeconfig={management} get cpm {CLUSTER} -o yaml\n  \
             kubectl --kubeconfig={management} -n {CONTROL_PLANE} get deployments,pods -o wide\n  \
             kubectl --kubeconfig={tenant} get nodes,services -o wide\n  \
             kubectl --kubeconfig={tenant} -n kube-system get leases\n\n  \
             logs of Pods:        {run}/pods/*.log\n  \
             every AWS call:      {run}/aws-calls.jsonl\n  \
             tenant's audit log:  {}\n",
            self.tenant.audit_log().display()
        ))
    }

    /// Ends every process in order; the Pods' processes get `grace`.
    pub async fn end(self, grace: Duration) {
        drop((self.kubelets, self.leases));
        self.runner.shutdown(grace).await;
        drop(self.webhook);
    }

    /// Marks a step on the clock of the record.
    pub(crate) fn mark(&self, name: &str) {
        let (at, name) = (Timestamp::now(), name.to_owned());
        locked(&self.markers).push(Marker { at, name });
    }

    /// When a step was marked last.
    pub(crate) fn marked(&self, name: &str) -> Option<Timestamp> {
        let markers = locked(&self.markers);
        markers
            .iter()
            .rev()
            .find(|marker| marker.name == name)
            .map(|marker| marker.at)
    }

    /// Stops a Pod's processes by a signal, and writes down from when.
    pub(crate) async fn pause(&self, pod: &str) -> Result<()> {
        for process in self.runner.processes(pod) {
            let from = Timestamp::now();
            process.pause().await?;
            locked(&self.pauses).push(Pause {
                process: process.name().to_owned(),
                from,
                until: None,
            });
        }
        Ok(())
    }

    /// Continues a Pod's processes.
    pub(crate) fn resume(&self, pod: &str) -> Result<()> {
        for process in self.runner.processes(pod) {
            process.resume()?;
            let now = Timestamp::now();
            let mut pauses = locked(&self.pauses);
            let of_process = |pause: &&mut Pause| pause.process == process.name() && pause.until.is_none();
            for pause in pauses.iter_mut().filter(of_process) {
                pause.until = Some(now);
            }
        }
        Ok(())
    }
}

/// A list of the record. A panic of another task does not spoil it.
fn locked<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn management_controllers(tools: &Tools, run: &Path, management: &ApiServer) -> Result<Process> {
    let home = run.join("management-kcm");
    std::fs::create_dir_all(&home)?;

    let manager = ManagementControllerManager {
        kubeconfig: management.kubeconfig(&User::admin())?,
        service_account_key: management.service_account_key(),
        certificate_folder: home,
        port: free_port()?,
    };
    let launch = Launch::new("management-kcm", tools.path(Tool::ControllerManager126)?).arguments(manager.arguments());
    Ok(Process::start(&launch, run)?)
}

async fn pod_runner(
    run: &Path,
    tools: &Tools,
    binaries: &Binaries,
    management: &ApiServer,
    proxy: &Arc<Proxy>,
) -> Result<PodRunner> {
    let with_cloud = |mut image: Image| {
        // The access key comes from the runner, one for each process.
        for (name, value) in Caller::new("template").environment(proxy.url()) {
            if !name.starts_with("AWS_ACCESS") && !name.starts_with("AWS_SECRET") {
                image = image.environment(name, value);
            }
        }
        image
    };

    let old = tools.path(Tool::ControllerManager126)?;
    let mut images = vec![
        Image::new(
            "registry.k8s.io/kube-controller-manager",
            "kube-controller-manager",
            old,
        ),
        Image::new("outrigger-manager", "outrigger-manager", &binaries.manager),
    ];

    if let Ok(incumbent) = tools.path(Tool::AwsCloudControllerManager) {
        let image = "registry.k8s.io/provider-aws/cloud-controller-manager";
        images.push(Image::new(image, "aws-cloud-controller-manager", incumbent));
    }

    let folder = run.join("pods");
    std::fs::create_dir_all(&folder)?;

    let proxy = Arc::clone(proxy);
    let config = RunnerConfig {
        node: RUNNER_NODE.to_owned(),
        namespaces: vec![CONTROL_PLANE.to_owned()],
        images: ImageTable::new(images.into_iter().map(with_cloud)),
        folder,
        on_access_key: Arc::new(move |key, process| {
            let (name, access_key_id) = (process.to_owned(), key.to_owned());
            proxy.add_caller(&Caller { name, access_key_id });
        }),
    };

    let cluster = kubelets::config(&management.kubeconfig(&User::admin())?).await?;

    Ok(PodRunner::start(&cluster, config).await?)
}
