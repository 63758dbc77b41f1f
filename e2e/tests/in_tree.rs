//! A cluster before a migration, with the real components: a kube-controller-manager 1.26 whose in-tree AWS provider
//! owns a cluster's load balancers.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service as KubernetesService};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use outrigger_aws_sim::{Call, Caller, Instance, Moto, Proxy, SeededAccount, Service};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, TenantControllerManager, User, Version};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use serde_json::json;

const CLUSTER: &str = "in-tree";
const MINUTE: Duration = Duration::from_secs(60);

/// Everything of the test. Fields drop in order: callers before those they call.
struct InTree {
    manager: Process,
    caller: Caller,
    tools: Tools,
    run: PathBuf,
    proxy: Proxy,
    account: SeededAccount,
    moto: Moto,
    api: ApiServer,
    _etcd: Etcd,
    _run: Option<tempfile::TempDir>,
}

impl InTree {
    async fn start() -> Self {
        let tools = Tools::load(&[
            Tool::Etcd,
            Tool::ApiServer126,
            Tool::ControllerManager126,
            Tool::MotoPython,
        ]);
        let tools = tools.await.expect("tools");
        let (folder, path) = run_folder();
        let moto = Moto::start(&tools, &path).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, 2).await.expect("seeded");
        let caller = Caller::new("kube-controller-manager");
        let proxy = Proxy::start(&moto, std::slice::from_ref(&caller), Some(&path.join("aws.jsonl")))
            .await
            .expect("proxy");
        let etcd = Etcd::start(&tools, &path).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", Version::V1_26, "127.96.0.0/16");
        let api = ApiServer::start(&tools, &path, &etcd, &options)
            .await
            .expect("API server");
        let admin = api.client(&User::admin(), "in-tree-test").await.expect("client");
        for instance in &account.instances {
            create_node(&admin, instance).await;
        }
        keep_alive(&admin, &account.instances);
        let manager = start_manager(&tools, &path, &api, &account, &proxy, &caller).await;
        Self {
            manager,
            caller,
            tools,
            run: path,
            proxy,
            account,
            moto,
            api,
            _etcd: etcd,
            _run: folder,
        }
    }

    async fn services(&self) -> Api<KubernetesService> {
        let client = self.api.client(&User::admin(), "in-tree-test").await.expect("client");
        Api::namespaced(client, "default")
    }

    async fn leases(&self) -> Api<Lease> {
        let client = self.api.client(&User::admin(), "in-tree-test").await.expect("client");
        Api::namespaced(client, "kube-system")
    }
}

/// A temporary folder, or a new one below `OUTRIGGER_RUN`, which then stays for whoever looks at a failure.
fn run_folder() -> (Option<tempfile::TempDir>, PathBuf) {
    let folder = match std::env::var("OUTRIGGER_RUN") {
        Ok(parent) => {
            std::fs::create_dir_all(&parent).expect("folder");
            return (None, tempfile::tempdir_in(parent).expect("folder").keep());
        }
        Err(_) => tempfile::tempdir().expect("folder"),
    };
    let path = folder.path().to_owned();
    (Some(folder), path)
}

async fn start_manager(
    tools: &Tools,
    run: &Path,
    api: &ApiServer,
    account: &SeededAccount,
    proxy: &Proxy,
    caller: &Caller,
) -> Process {
    let cloud_config = run.join("cloud.conf");
    std::fs::write(&cloud_config, account.cloud_config(proxy.url())).expect("written");
    let port = free_port().expect("port");
    let arguments = TenantControllerManager {
        kubeconfig: api.kubeconfig(&User::kube_controller_manager()).expect("kubeconfig"),
        cloud_config,
        cluster_name: CLUSTER.to_owned(),
        service_account_key: api.service_account_key(),
        certificate_folder: run.join("kcm"),
        port,
        leader_migration: false,
    }
    .arguments();
    let program = tools.path(api.version().controller_manager()).expect("binary");
    let mut launch = Launch::new("kube-controller-manager", program).arguments(arguments);
    for (name, value) in caller.environment(proxy.url()) {
        launch = launch.environment(name, value);
    }
    Process::start(&launch, run).expect("starts")
}

/// A Node as a kubelet of the old days registers it: with its provider ID, Ready. Its Ready condition is good for 40 s
/// unless someone renews it ([`keep_alive`]).
async fn create_node(client: &kube::Client, instance: &Instance) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance.private_dns_name,
            "labels": {"topology.kubernetes.io/zone": instance.zone, "topology.kubernetes.io/region": "us-east-1"},
        },
        "spec": {"providerID": instance.provider_id()},
    });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node).expect("a Node"))
        .await
        .expect("created");
    beat(&nodes, &instance.private_dns_name).await;
}

/// Renews the Ready conditions until the test ends: on a busy machine 40 s are soon over.
fn keep_alive(client: &kube::Client, instances: &[Instance]) {
    let nodes: Api<Node> = Api::all(client.clone());
    let names: Vec<String> = instances
        .iter()
        .map(|instance| instance.private_dns_name.clone())
        .collect();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            for name in &names {
                // The API server ends before the test does.
                let _ = nodes
                    .patch_status(name, &PatchParams::default(), &Patch::Merge(heartbeat()))
                    .await;
            }
        }
    });
}

fn heartbeat() -> serde_json::Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as a kubelet would say",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}})
}

async fn beat(nodes: &Api<Node>, name: &str) {
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(heartbeat()))
        .await
        .expect("patched");
}

fn load_balancer_service(name: &str) -> KubernetesService {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name},
                 "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }))
    .expect("a Service")
}

async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    wait::until(what, 2 * MINUTE, look).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_controller_manager_gives_a_service_a_classic_load_balancer_and_takes_it_away() {
    let mut old = InTree::start().await;
    let leases = old.leases().await;
    let holder = eventually("leader", async || {
        assert!(
            old.manager.exit().is_none(),
            "kube-controller-manager ended:\n{}",
            old.manager.log_tail()
        );
        leases
            .get_opt("kube-controller-manager")
            .await
            .expect("readable")?
            .spec?
            .holder_identity
    })
    .await;
    assert!(!holder.is_empty());

    let services = old.services().await;
    services
        .create(&PostParams::default(), &load_balancer_service("web"))
        .await
        .expect("created");
    let hostname = eventually("load balancer in the Service's status", async || {
        let service = services.get("web").await.expect("readable");
        service.status?.load_balancer?.ingress?.into_iter().next()?.hostname
    })
    .await;
    let registered = |calls: &[Call]| {
        calls
            .iter()
            .find(|call| call.action == "RegisterInstancesWithLoadBalancer" && call.succeeded())
            .cloned()
    };
    old.proxy
        .wait_for("registered instances", MINUTE, registered)
        .await
        .expect("registered");

    for call in old.proxy.calls() {
        println!("{call}");
    }
    check_load_balancer(&old, &hostname).await;
    check_calls(&old.proxy);
    check_restart(&mut old).await;

    services.delete("web", &DeleteParams::default()).await.expect("deleted");
    let deleted = |calls: &[Call]| {
        calls
            .iter()
            .find(|call| call.action == "DeleteLoadBalancer" && call.succeeded())
            .map(|_| ())
    };
    old.proxy
        .wait_for("deletion of the load balancer", MINUTE, deleted)
        .await
        .expect("deleted");
    eventually("end of the Service", async || {
        services.get_opt("web").await.expect("readable").is_none().then_some(())
    })
    .await;
    assert!(balancers(&old).await.items("LoadBalancerDescriptions").is_empty());
    check_audit_log(&old);
    old.manager.stop(Duration::from_secs(20)).await.expect("stops");
}

/// All calls are the old manager's, and AWS took all of its changes.
fn check_calls(proxy: &Proxy) {
    let counts: BTreeMap<_, _> = proxy.counts();
    assert!(
        counts.keys().all(|(caller, _)| caller == "kube-controller-manager"),
        "{counts:?}"
    );
    let failed: Vec<String> = proxy
        .calls()
        .iter()
        .filter(|call| call.is_write() && !call.succeeded())
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A restarted manager finds everything as it wants it, so the simulation is faithful; one write it repeats at every
/// sync whatever it finds.
async fn check_restart(old: &mut InTree) {
    old.manager.stop(Duration::from_secs(20)).await.expect("stops");
    let mark = old.proxy.mark();
    let nodes: Api<Node> = Api::all(old.api.client(&User::admin(), "in-tree-test").await.expect("client"));
    for instance in &old.account.instances {
        beat(&nodes, &instance.private_dns_name).await;
    }
    old.manager = start_manager(&old.tools, &old.run, &old.api, &old.account, &old.proxy, &old.caller).await;
    // The old holder's lease is not released; only then does the new one work. Membership is looked at last.
    let looked = |calls: &[Call]| {
        let balancer = calls
            .iter()
            .filter(|call| call.seq >= mark && call.action == "DescribeLoadBalancers");
        (balancer.count() >= 2).then_some(())
    };
    old.proxy
        .wait_for("sync after the restart", MINUTE, looked)
        .await
        .expect("syncs");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let again = old.proxy.calls_since(mark);
    for call in &again {
        println!("{call}");
    }
    let writes: Vec<&str> = again
        .iter()
        .filter(|call| call.is_write())
        .map(|call| call.action.as_str())
        .collect();
    assert!(
        writes.iter().all(|action| *action == "ModifyLoadBalancerAttributes"),
        "{writes:?}"
    );
}

/// The audit log has the same story from the Kubernetes side, told by user agents.
fn check_audit_log(old: &InTree) {
    let log = std::fs::read_to_string(old.api.audit_log()).expect("audit log");
    let events: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let wrote = |resource: &str, subresource: &str, agent: &str| {
        events.iter().any(|event| {
            event["objectRef"]["resource"] == resource
                && event["objectRef"]["subresource"].as_str().unwrap_or_default() == subresource
                && event["userAgent"].as_str().is_some_and(|found| found.contains(agent))
                && ["patch", "update", "create"].contains(&event["verb"].as_str().unwrap_or_default())
        })
    };
    assert!(
        wrote("services", "status", "service-controller"),
        "the Service's status"
    );
    assert!(wrote("leases", "", "leader-election"), "the Lease");
    assert!(wrote("services", "", "in-tree-test"), "this test");
}

async fn balancers(old: &InTree) -> outrigger_aws_sim::xml::Element {
    old.moto
        .call(&Service::Elb, "DescribeLoadBalancers", Default::default())
        .await
        .expect("described")
}

async fn check_load_balancer(old: &InTree, hostname: &str) {
    let all = balancers(old).await;
    let [balancer] = all.items("LoadBalancerDescriptions") else {
        panic!("not one load balancer: {all:?}")
    };
    assert_eq!(balancer.value("DNSName"), hostname);
    let mut registered: Vec<&str> = balancer
        .items("Instances")
        .iter()
        .map(|item| item.value("InstanceId"))
        .collect();
    registered.sort_unstable();
    let mut expected: Vec<&str> = old
        .account
        .instances
        .iter()
        .map(|instance| instance.id.as_str())
        .collect();
    expected.sort_unstable();
    assert_eq!(registered, expected);
    let mut subnets: Vec<&str> = balancer
        .items("Subnets")
        .iter()
        .map(|item| item.text.as_str())
        .collect();
    subnets.sort_unstable();
    let mut own: Vec<&str> = old.account.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    own.sort_unstable();
    assert_eq!(subnets, own);
    assert!(
        balancer
            .at(&["HealthCheck", "Target"])
            .is_some_and(|target| target.text.starts_with("TCP:"))
    );
}

/// The harness is used from spawned tasks too, so its futures must be able to move between threads.
#[test]
fn starting_components_can_be_spawned() {
    fn spawnable<T: Send>(
        _: impl FnOnce(&'static Tools, &'static Path, &'static Etcd, &'static ApiServerOptions) -> T,
    ) {
    }
    spawnable(|tools, run, _, _| Etcd::start(tools, run));
    spawnable(|tools, run, _, _| Moto::start(tools, run));
    spawnable(ApiServer::start);
}
