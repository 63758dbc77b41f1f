//! A tenant with nothing but our manager: one API server, the simulated AWS behind its proxy, and managers as plain
//! processes that a test starts, stops and kills.

mod manager;
mod services;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Client;

use outrigger_aws_sim::{Instance, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::kubelets::{self, NodeSpec};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::Binaries;

pub use manager::{Manager, start_manager};
pub use services::{ServiceEvent, differences, has_address};

/// The cluster's ID in its AWS tags.
pub const CLUSTER: &str = "prod";

/// The differences between two of them.
#[derive(Debug, Clone)]
pub struct Options {
    /// The beginning of the run folder's name.
    pub name: &'static str,
    /// The range of Service cluster IPs, in 127/8.
    pub service_range: &'static str,
    pub instances: usize,
    /// Lines for the section `[Global]` of the cloud config, besides those that say where the cluster is.
    pub global: &'static [&'static str],
}

/// Everything that stands. Fields drop in order: callers before those they call.
pub struct SingleCluster {
    /// A client of the API server, as an administrator.
    pub client: Client,
    /// For kubelets that play.
    pub kube_config: kube::Config,
    pub proxy: Proxy,
    pub account: SeededAccount,
    pub moto: Moto,
    kubeconfig: PathBuf,
    api: ApiServer,
    _etcd: Etcd,
    run: RunFolder,
}

impl SingleCluster {
    /// Starts everything but managers and Nodes, with Kubernetes 1.26.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(options: &Options) -> Result<Self> {
        Self::start_version(Version::V1_26, options).await
    }

    /// Starts everything but managers and Nodes.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start_version(version: Version, options: &Options) -> Result<Self> {
        let tools = Tools::load(&[Tool::Etcd, version.api_server(), Tool::MotoPython]).await?;
        let run = RunFolder::new(options.name)?;
        let path = run.path().to_owned();
        let moto = Moto::start(&tools, &path).await?;
        let account = SeededAccount::seed(&moto, CLUSTER, options.instances).await?;
        let proxy = Proxy::start(&moto, &[], Some(&path.join("aws-calls.jsonl"))).await?;
        let etcd = Etcd::start(&tools, &path).await?;
        let server = ApiServerOptions::new("tenant", version, options.service_range).node_restriction();
        let api = ApiServer::start(&tools, &path, &etcd, &server).await?;
        let kubeconfig = api.kubeconfig(&User::admin())?;
        let config = with_global(&account.cloud_config(proxy.url()), options.global);
        std::fs::write(cloud_config(&path), config).context("writing the cloud config")?;

        Ok(Self {
            client: api.client(&User::admin(), options.name).await?,
            kube_config: kubelets::config(&kubeconfig).await?,
            proxy,
            account,
            moto,
            kubeconfig,
            api,
            _etcd: etcd,
            run,
        })
    }

    /// Starts a manager. `name` is unique in the run; `flags` come after those that every manager gets.
    ///
    /// # Errors
    /// When its binary is not built.
    pub fn manager(&self, name: &str, flags: &[&str]) -> Result<Manager> {
        let config = cloud_config(self.run());
        let files = self.files(Binaries::one("outrigger-manager")?, &config);
        Manager::start(name, flags, &files, &self.proxy)
    }

    /// Starts the incumbent, v1.37, in its place; else as [`SingleCluster::manager`].
    ///
    /// # Errors
    /// When its binary cannot be had.
    pub async fn incumbent(&self, name: &str, flags: &[&str]) -> Result<Manager> {
        let tools = Tools::load(&[Tool::AwsCloudControllerManager]).await?;
        let program = tools.path(Tool::AwsCloudControllerManager)?.to_owned();
        let config = cloud_config(self.run());
        let kubeconfig = self.kubeconfig.display();
        let access = ["authentication", "authorization"].map(|what| format!("--{what}-kubeconfig={kubeconfig}"));
        let own = access
            .iter()
            .map(String::as_str)
            .chain(["--authentication-skip-lookup=true"]);
        let flags: Vec<&str> = own.chain(flags.iter().copied()).collect();

        Manager::start(name, &flags, &self.files(program, &config), &self.proxy)
    }

    /// A client with the certificate of this user.
    ///
    /// # Errors
    /// When it cannot be issued.
    pub async fn client_of(&self, user: &User) -> Result<Client> {
        Ok(self.api.client(user, "e2e-principal").await?)
    }

    pub fn run(&self) -> &Path {
        self.run.path()
    }

    fn files<'a>(&'a self, program: PathBuf, cloud_config: &'a Path) -> manager::Files<'a> {
        manager::Files {
            program,
            run: self.run(),
            kubeconfig: &self.kubeconfig,
            cloud_config,
        }
    }
}

fn cloud_config(run: &Path) -> PathBuf {
    run.join("cloud.conf")
}

fn with_global(config: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    config.replacen("[Global]\n", &format!("[Global]\n{lines}"), 1)
}

/// The Node of an instance as an in-tree kubelet registers it: Ready, and known to the cloud.
pub fn node_of(instance: &Instance) -> NodeSpec {
    NodeSpec::in_tree(&kubelet_instance(instance))
}

/// The instance as its kubelet knows it.
pub fn kubelet_instance(instance: &Instance) -> Instance {
    Instance {
        public: None,
        ..instance.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::with_global;

    #[test]
    fn lines_go_into_the_section() {
        assert_eq!(
            with_global("[Global]\nZone = a\n", &["B = c"]),
            "[Global]\nB = c\nZone = a\n"
        );
        assert_eq!(with_global("[Global]\nZone = a\n", &[]), "[Global]\nZone = a\n");
    }
}
