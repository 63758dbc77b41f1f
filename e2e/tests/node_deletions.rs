//! Many Nodes lose their instances at once. EC2 lists none for 400 of 1,000 Nodes: none is deleted and an Event says why.
//! Then 400 others are terminated: all of these are deleted, while the first ones stay.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "test helpers")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_aws_sim::{Fleet, Instance, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_e2e::single_cluster::start_manager;
use serde_json::{Value, json};
use tokio::time::Instant;

const CLUSTER: &str = "prod";
const NODES: usize = 1000;
const LOST: usize = 400;
/// Nodes younger than a minute are not deleted for an absent instance, and absence is observed twice.
const ALARM: Duration = Duration::from_secs(300);
/// How long the test watches that nothing is deleted.
const WATCHED: Duration = Duration::from_secs(30);
/// Longest time until all Nodes of terminated instances are deleted.
const DELETED: Duration = Duration::from_secs(300);

const FLAGS: [&str; 2] = ["--controllers=cloud-node-lifecycle", "--leader-elect=false"];

/// Everything that runs. Fields drop in order: callers before those they call.
struct Running {
    manager: Process,
    client: Client,
    fleet: Arc<Fleet>,
    _proxy: Proxy,
    _moto: Moto,
    _api: ApiServer,
    _etcd: Etcd,
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_instances_take_their_nodes_along_and_absent_ones_raise_an_alarm() {
    let folder = tempfile::Builder::new()
        .prefix("outrigger-deletions-")
        .tempdir()
        .expect("folder");
    let run = folder.keep(); // stays when the test fails
    println!("logs: {}", run.display());
    let running = Running::start(&run).await;
    let instances = running.fleet.instances();
    let (terminated, running_on) = instances.split_at(LOST);
    let absent = (0..LOST).map(|n| node(&format!("absent-{n}"), &format!("i-{:017x}", 0xf_0000 + n), "Unknown"));
    let present = terminated.iter().chain(running_on);
    let present = present.map(|instance| node(&instance.private_dns_name, &instance.id, "True"));
    running.create(absent.chain(present).collect()).await;

    running.wait_for_alarm().await;
    tokio::time::sleep(WATCHED).await;
    assert_eq!(
        running.nodes().await,
        NODES,
        "no Node is deleted for an absent instance"
    );

    running.terminate(terminated).await;
    let began = Instant::now();
    while running.nodes().await > NODES - LOST {
        assert!(
            began.elapsed() < DELETED,
            "{} Nodes are left:\n{}",
            running.nodes().await,
            running.manager.log_tail()
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    println!("{LOST} Nodes deleted after {:.1?}", began.elapsed());
    tokio::time::sleep(WATCHED).await;
    assert_eq!(running.nodes().await, NODES - LOST, "the others stay");
    running.manager.stop(Duration::from_secs(5)).await.expect("ends");
    std::fs::remove_dir_all(&run).expect("removed");
}

impl Running {
    async fn start(run: &Path) -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer126, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", Version::V1_26, "127.96.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options)
            .await
            .expect("API server");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, 0).await.expect("an account");
        let count = u32::try_from(NODES - LOST).expect("few");
        let fleet = Arc::new(Fleet::new(&account, count));
        let proxy = Proxy::start(&moto, &[], None).await.expect("proxy");
        proxy.set_fleet(Some(Arc::clone(&fleet)));
        Self {
            manager: start_manager(run, &api, &account, &proxy, &FLAGS).expect("the manager starts"),
            client: api.client(&User::admin(), "deletions-test").await.expect("client"),
            fleet,
            _proxy: proxy,
            _moto: moto,
            _api: api,
            _etcd: etcd,
        }
    }

    async fn create(&self, nodes: Vec<Value>) {
        let api = Api::<Node>::all(self.client.clone());
        let nodes = nodes
            .into_iter()
            .map(|node| serde_json::from_value(node).expect("a Node"));
        stream::iter(nodes.collect::<Vec<Node>>())
            .map(|node| {
                let api = api.clone();
                async move { api.create(&PostParams::default(), &node).await }
            })
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await
            .expect("created");
    }

    async fn nodes(&self) -> usize {
        let nodes = Api::<Node>::all(self.client.clone());
        nodes
            .list_metadata(&ListParams::default())
            .await
            .expect("listed")
            .items
            .len()
    }

    async fn wait_for_alarm(&self) {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        let alarms = ListParams::default().fields("reason=TooManyNodesGone");
        let deadline = Instant::now() + ALARM;
        while events.list(&alarms).await.expect("listed").items.is_empty() {
            assert!(
                Instant::now() < deadline,
                "no alarm within {ALARM:?}:\n{}",
                self.manager.log_tail()
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Terminates instances; their kubelets are silent from then on.
    async fn terminate(&self, instances: &[Instance]) {
        self.fleet
            .terminate(instances.iter().map(|instance| instance.id.as_str()));
        let api = Api::<Node>::all(self.client.clone());
        stream::iter(instances)
            .map(|instance| {
                let (api, patch) = (api.clone(), json!({"status": {"conditions": [ready("Unknown")]}}));
                async move {
                    let (name, parameters) = (&instance.private_dns_name, PatchParams::default());
                    api.patch_status(name, &parameters, &Patch::Strategic(&patch)).await
                }
            })
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await
            .expect("patched");
    }
}

fn ready(status: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready", "status": status, "reason": "Harness", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

fn node(name: &str, instance: &str, status: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"providerID": format!("aws:///us-east-1a/{instance}")},
        "status": {"addresses": [{"type": "Hostname", "address": name}], "conditions": [ready(status)]},
    })
}
