//! An API server 1.26 beside which controllers of Kubernetes run.

use kube::Client;
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, User, Version,
};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};

/// The fields are dropped in this order: the server ends before its etcd, and the folder goes last.
pub struct TestCluster {
    pub admin: Client,
    pub server: ApiServer,
    _etcd: Etcd,
    run: tempfile::TempDir,
    pub tools: Tools,
}

impl TestCluster {
    pub async fn start(name: &str, service_range: &str) -> Self {
        let wanted = [
            Tool::Etcd,
            Tool::ApiServer126,
            Tool::ControllerManager126,
            Tool::Kustomize,
        ];
        let tools = Tools::load(&wanted).await.expect("tools");
        let run = tempfile::tempdir().expect("folder");
        let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
        let options = ApiServerOptions::new(name, Version::V1_26, service_range);
        let server = ApiServer::start(&tools, run.path(), &etcd, &options)
            .await
            .expect("API server");
        let admin = server.client(&User::admin(), "manifests-test/1").await.expect("client");

        Self {
            admin,
            server,
            _etcd: etcd,
            run,
            tools,
        }
    }

    /// Starts a kube-controller-manager with the flags of a management cluster, and these.
    pub fn controller_manager(&self, flags: &[&str]) -> Process {
        let manager = ManagementControllerManager {
            kubeconfig: self.server.kubeconfig(&User::admin()).expect("kubeconfig"),
            service_account_key: self.server.service_account_key(),
            certificate_folder: self.run.path().join("kcm"),
            port: free_port().expect("port"),
        };
        let mut arguments = manager.arguments();
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let program = self
            .tools
            .path(self.server.version().controller_manager())
            .expect("binary");
        let launch = Launch::new("kube-controller-manager", program).arguments(arguments);
        Process::start(&launch, self.run.path()).expect("starts")
    }
}
