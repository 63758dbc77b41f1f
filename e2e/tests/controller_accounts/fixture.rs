//! A tenant whose manager may do what the manifests let it, and no more.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_aws_sim::{Caller, Instance, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::audit::AuditLog;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::kubelets::{self, Kubelet, NodeSpec};
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_e2e::single_cluster::kubelet_instance;
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::record::{MANAGER, Record};

/// The label of the tagging controller.
pub const TAGGED: &str = "k8s.io/cloud-provider-aws";
const CLUSTER: &str = "prod";
const LIMIT: Duration = Duration::from_secs(120);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The Role that lets the manager ask for tokens.
const ROLE: &str = "outrigger-manager:controller-accounts";
const SERVICE: &str = "web";

/// Everything that stands. Fields drop in order: callers before those they call.
pub struct Fixture {
    manager: Option<Process>,
    kubelets: Vec<Kubelet>,
    admin: Client,
    audit: AuditLog,
    stopped: Instance,
    /// The Role as the manifests have it.
    role: Value,
    proxy: Proxy,
    account: SeededAccount,
    _moto: Moto,
    api: ApiServer,
    _etcd: Etcd,
    run: RunFolder,
}

impl Fixture {
    /// With two new Nodes, one whose instance is stopped, and a Service.
    pub async fn build(version: Version, range: &str) -> Self {
        let wanted = [Tool::Etcd, version.api_server(), Tool::MotoPython, Tool::Kustomize];
        let tools = Tools::load(&wanted).await.expect("tools");
        let run = RunFolder::new("outrigger-accounts-").expect("folder");
        let moto = Moto::start(&tools, run.path()).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, 3).await.expect("an account");
        let stopped = account.instances.last().expect("three").clone();
        account.stop(&moto, &[&stopped.id]).await.expect("stopped");
        let record = run.path().join("aws-calls.jsonl");
        let proxy = Proxy::start(&moto, &[], Some(&record)).await.expect("proxy");
        let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", version, range);
        let api = ApiServer::start(&tools, run.path(), &etcd, &options)
            .await
            .expect("API server");
        let admin = api.client(&User::admin(), "accounts-test").await.expect("a client");
        let rights = rights(&tools, &run).await;
        manifests::apply(&admin, &rights).await.expect("applied");
        let role = rights
            .iter()
            .find(|object| object["metadata"]["name"] == ROLE && object["kind"] == "Role");
        let mut fixture = Self {
            manager: None,
            kubelets: Vec::new(),
            audit: AuditLog::new(api.audit_log()),
            role: role.expect("the component's Role").clone(),
            admin,
            stopped,
            proxy,
            account,
            _moto: moto,
            api,
            _etcd: etcd,
            run,
        };
        fixture.populate().await;
        fixture
    }

    async fn populate(&mut self) {
        let kubeconfig = self.api.kubeconfig(&User::admin()).expect("kubeconfig");
        let cluster = kubelets::config(&kubeconfig).await.expect("a configuration");
        for instance in self.account.instances.iter().filter(|other| **other != self.stopped) {
            let spec = new_node(instance);
            self.kubelets
                .push(Kubelet::start(&cluster, spec).await.expect("it joins"));
        }
        // Its kubelet has nothing to say any more.
        let Instance { private_dns_name, .. } = &self.stopped;
        let node = json!({
            "metadata": {"name": private_dns_name},
            "spec": {"providerID": self.stopped.provider_id()},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
        });
        let node = serde_json::from_value(node).expect("a Node");
        let made = self.nodes().create(&PostParams::default(), &node).await;
        made.expect("created");
        let service = json!({
            "metadata": {"name": SERVICE},
            "spec": {"type": "LoadBalancer", "selector": {"app": SERVICE}, "ports": [{"port": 80}]},
        });
        let service = serde_json::from_value(service).expect("a Service");
        let made = self.services().create(&PostParams::default(), &service).await;
        made.expect("created");
    }

    /// All controllers, as the user whom the manifests name.
    pub fn start_manager(&mut self) {
        let config = self.run.path().join("cloud.conf");
        std::fs::write(&config, self.account.cloud_config(self.proxy.url())).expect("written");
        let caller = Caller::new(MANAGER);
        self.proxy.add_caller(&caller);
        let kubeconfig = self.api.kubeconfig(&User::new(MANAGER)).expect("kubeconfig");
        let binary = Binaries::one("outrigger-manager").expect("built");
        let mut launch = Launch::new(MANAGER, binary).arguments([
            "--cloud-provider=aws",
            &format!("--cloud-config={}", config.display()),
            &format!("--kubeconfig={}", kubeconfig.display()),
            &format!("--cluster-name={CLUSTER}"),
            "--use-service-account-credentials=true",
            "--controllers=*,node-ipam-controller,tagging-controller",
            "--allocate-node-cidrs=true",
            "--configure-cloud-routes=true",
            "--cluster-cidr=10.200.0.0/16",
            "--node-monitor-period=2s",
            "--tags=team=web",
            "--resources=instance",
            "--aws-api-budget-share=1",
            "--secure-port=0",
        ]);
        for (variable, value) in caller.environment(self.proxy.url()) {
            launch = launch.environment(variable, value);
        }
        self.manager = Some(Process::start(&launch, self.run.path()).expect("the manager starts"));
    }

    /// Whether the Service has an address.
    pub async fn is_served(&self) -> bool {
        let service = self.services().get(SERVICE).await.expect("there");
        let status = service.status.and_then(|status| status.load_balancer);
        status.is_some_and(|status| status.ingress.is_some_and(|ingress| !ingress.is_empty()))
    }

    /// Whether every controller but that of Services has done for every Node what it has to do.
    pub async fn are_nodes_done(&self) -> bool {
        let nodes = self.nodes().list(&ListParams::default()).await.expect("listed").items;
        let done = |node: &Node| {
            let node = serde_json::to_value(node).expect("JSON");
            let has_taint = |key: &str| {
                let taints = node["spec"]["taints"].as_array();
                taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
            };
            let conditions = node["status"]["conditions"].as_array();
            let is_routed =
                conditions.is_some_and(|all| all.iter().any(|condition| condition["reason"] == "RouteCreated"));
            let is_stopped = node["metadata"]["name"] == self.stopped.private_dns_name.as_str();
            !has_taint(UNINITIALIZED)
                && has_taint(SHUTDOWN) == is_stopped
                && node["spec"]["providerID"].is_string()
                && node["spec"]["podCIDR"].is_string()
                && node["metadata"]["labels"][TAGGED].is_string()
                && is_routed
        };
        nodes.iter().all(done)
    }

    /// A Node that has everything.
    pub fn any_node(&self) -> String {
        self.kubelets.first().expect("two").name().to_owned()
    }

    /// Changes a Node by a merge patch.
    pub async fn patch_node(&self, name: &str, patch: &Value) {
        let patched = self
            .nodes()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.expect("patched");
    }

    pub async fn make_account(&self, name: &str) {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
        let made = self.accounts().create(&PostParams::default(), &account).await;
        made.expect("made");
    }

    /// The UID of an account.
    pub async fn account(&self, name: &str) -> Option<String> {
        let found = self.accounts().get_opt(name).await.expect("readable");
        found.and_then(|account| account.metadata.uid)
    }

    pub async fn delete_account(&self, name: &str) {
        let deleted = self.accounts().delete(name, &DeleteParams::default()).await;
        deleted.expect("deleted");
    }

    /// Takes one name out of the Role.
    pub async fn let_tokens_be_had_but(&self, account: &str) {
        let mut role = self.role.clone();
        let names = role["rules"][0]["resourceNames"].as_array_mut().expect("names");
        names.retain(|name| name != account);
        manifests::apply(&self.admin, &[role]).await.expect("applied");
    }

    /// The Role as the manifests have it.
    pub async fn let_all_tokens_be_had(&self) {
        let role = [self.role.clone()];
        manifests::apply(&self.admin, &role).await.expect("applied");
    }

    /// The manager's part of the audit log.
    pub async fn record(&self) -> Record {
        Record::of(self.audit.events().await.expect("an audit log"))
    }

    /// The manager's log.
    pub fn log(&self) -> String {
        let log = self.manager.as_ref().expect("it was started").log();
        std::fs::read_to_string(log).expect("its log")
    }

    /// Waits until it holds.
    pub async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let started = Instant::now();
        let manager = self.manager.as_ref().expect("it was started");
        while !holds(self).await {
            assert!(manager.exit().is_none(), "it ended by itself:\n{}", manager.log_tail());
            assert!(started.elapsed() < LIMIT, "never: {what}\n{}", manager.log_tail());
            sleep(Duration::from_millis(200)).await;
        }
        println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.admin.clone(), "default")
    }

    fn accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.admin.clone(), "kube-system")
    }
}

/// The tenant's overlay with the component, as far as it gives rights.
async fn rights(tools: &Tools, run: &RunFolder) -> Vec<Value> {
    let tenant = "overlays/hosted/tenant";
    let objects = manifests::with_component(tools, run.path(), tenant, "controller-accounts").await;
    let mut objects = objects.expect("kustomize accepts it");
    objects.retain(|object| object["apiVersion"] == "rbac.authorization.k8s.io/v1");
    objects
}

/// As a kubelet of an external cloud registers it.
fn new_node(instance: &Instance) -> NodeSpec {
    NodeSpec::external(&kubelet_instance(instance)).uninitialized()
}
