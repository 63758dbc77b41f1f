//! A tenant with nothing but our manager: API server, simulated AWS, two Nodes. The manager is a plain process that
//! can be killed at any of its calls to AWS.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use outrigger_e2e::aws::{Caller, Fault, FaultHandle, Moto, Proxy, REGION, When, World};
use outrigger_e2e::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_e2e::kubelets::{self, Instance, Kubelet, NodeSpec};
use outrigger_e2e::process::{Launch, Process};
use outrigger_e2e::stage::Binaries;
use outrigger_e2e::tools::{Tool, Tools};
use serde_json::json;

/// The cluster's ID in its AWS tags.
pub const CLUSTER: &str = "prod";
/// Much longer than anything takes here.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Everything that stands. Fields drop in order: callers before those they call.
pub struct Alone {
    manager: Process,
    /// The manager that runs, as AWS knows it.
    pub caller: Caller,
    managers: usize,
    _kubelets: Vec<Kubelet>,
    /// Services of the namespace `default`.
    pub services: Api<Service>,
    /// Before AWS.
    pub proxy: Proxy,
    /// The account's resources.
    pub world: World,
    /// AWS.
    pub moto: Moto,
    api: ApiServer,
    _etcd: Etcd,
    run: Run,
}

/// The folder of the run; it stays when the test fails, for whoever looks why.
struct Run(Option<tempfile::TempDir>);

impl Run {
    fn path(&self) -> PathBuf {
        let folder = self.0.as_ref().expect("it is there until the end");
        folder.path().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take().filter(|_| std::thread::panicking()) {
            println!("logs and AWS calls: {}", folder.keep().display());
        }
    }
}

impl Alone {
    /// Starts everything, the first manager included.
    pub async fn start() -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer126, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let folder = tempfile::Builder::new().prefix("outrigger-crash-").tempdir();
        let run = Run(Some(folder.expect("a folder for the run")));
        let path = run.path();
        let moto = Moto::start(&tools, &path).await.expect("moto");
        let world = World::seed(&moto, CLUSTER, 2).await.expect("an account");
        let record = path.join("aws-calls.jsonl");
        let proxy = Proxy::start(&moto, &[], Some(&record)).await.expect("the proxy");
        let etcd = Etcd::start(&tools, &path).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", Version::V1_26, "127.95.0.0/16");
        let api = ApiServer::start(&tools, &path, &etcd, &options).await;
        let api = api.expect("the API server");
        let kubelets = join(&api, &world).await;
        let client = api.client(&User::admin(), "crash-test").await.expect("a client");
        std::fs::write(path.join("cloud.conf"), world.cloud_config(proxy.url())).expect("written");
        let (manager, caller) = start_manager(1, &run, &api, &proxy);
        Self {
            manager,
            caller,
            managers: 1,
            _kubelets: kubelets,
            services: Api::default_namespaced(client),
            proxy,
            world,
            moto,
            api,
            _etcd: etcd,
            run,
        }
    }

    /// Kills the manager.
    pub async fn kill_manager(&self) {
        let exit = self.manager.kill_now().await.expect("killed");
        let status = exit.status.expect("its end was seen");
        assert!(
            !status.success() && status.code().is_none(),
            "it had ended before: {status}"
        );
    }

    /// Starts the next manager, in the place of one that was killed.
    pub fn restart_manager(&mut self) {
        self.managers += 1;
        (self.manager, self.caller) = start_manager(self.managers, &self.run, &self.api, &self.proxy);
    }

    /// Holds the `nth` call of an action by the manager that runs.
    pub fn hold(&self, action: &str, nth: usize, when: When) -> FaultHandle {
        let calls = Fault::on(action).hold(when).by(&self.caller.name);
        self.proxy.add_fault(calls.from(nth).times(1))
    }

    /// Creates a Service of type LoadBalancer.
    pub async fn create_service(&self, name: &str) {
        let service = json!({
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
        });
        let service = serde_json::from_value(service).expect("a Service");
        let created = self.services.create(&PostParams::default(), &service).await;
        created.expect("created");
    }

    /// Deletes a Service; its finalizer keeps it.
    pub async fn delete_service(&self, name: &str) {
        let deleted = self.services.delete(name, &DeleteParams::default()).await;
        deleted.expect("deleted");
    }

    /// Waits until the Service has a host name, which is written when everything else is done.
    pub async fn wait_served(&self, name: &str) -> Service {
        let look = async || {
            let service = self.services.get(name).await.expect("readable");
            let status = service.status.as_ref()?.load_balancer.as_ref()?;
            status.ingress.as_ref()?.first()?;
            Some(service)
        };
        self.eventually(&format!("host name of Service {name}"), look).await
    }

    /// Waits until the Service is gone, which its finalizer allows when everything else is gone.
    pub async fn wait_gone(&self, name: &str) {
        let look = async || {
            let service = self.services.get_opt(name).await.expect("readable");
            service.is_none().then_some(())
        };
        self.eventually(&format!("end of Service {name}"), look).await;
    }

    async fn eventually<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while tokio::time::Instant::now() < deadline {
            if let Some(found) = look().await {
                return found;
            }
            let log = || self.manager.log_tail();
            assert!(self.manager.exit().is_none(), "the manager ended by itself:\n{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "no {what} within {LIMIT:?}; the manager says:\n{}",
            self.manager.log_tail()
        );
    }
}

/// A Node, Ready and known to the cloud, for each instance.
async fn join(api: &ApiServer, world: &World) -> Vec<Kubelet> {
    let kubeconfig = api.kubeconfig(&User::admin()).expect("kubeconfig");
    let cluster = kubelets::config(&kubeconfig).await.expect("usable");
    let mut joined = Vec::new();
    for machine in &world.instances {
        let spec = NodeSpec::in_tree(&Instance {
            id: machine.id.clone(),
            zone: machine.zone.clone(),
            region: REGION.to_owned(),
            instance_type: machine.instance_type.clone(),
            private_ip: machine.private_ip.clone(),
            private_dns_name: machine.private_dns_name.clone(),
            public: None,
        });
        joined.push(Kubelet::start(&cluster, spec).await.expect("joins"));
    }
    joined
}

/// Short leases: a killed manager's lease has to run out before the next may write.
fn start_manager(number: usize, run: &Run, api: &ApiServer, proxy: &Proxy) -> (Process, Caller) {
    let run = run.path();
    let name = format!("outrigger-manager-{number}");
    let caller = Caller::new(&name);
    proxy.add_caller(&caller);
    let kubeconfig = api.kubeconfig(&User::admin()).expect("kubeconfig");
    let binaries = Binaries::find().expect("built");
    let mut launch = Launch::new(name, &binaries.manager).arguments([
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", run.join("cloud.conf").display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--cluster-name={CLUSTER}"),
        "--configure-cloud-routes=false".to_owned(),
        "--leader-elect-lease-duration=3s".to_owned(),
        "--leader-elect-renew-deadline=2s".to_owned(),
        "--leader-elect-retry-period=500ms".to_owned(),
        "--secure-port=0".to_owned(),
    ]);
    for (variable, value) in caller.environment(proxy.url()) {
        launch = launch.environment(variable, value);
    }
    (Process::start(&launch, &run).expect("the manager starts"), caller)
}
