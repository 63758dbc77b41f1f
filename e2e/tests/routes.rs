//! The route controller of our real binary, alone, against a real API server and moto's route tables.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use outrigger_aws_sim::{Moto, Proxy, SeededAccount, is_write};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_e2e::pod_routes::{self, create, name, range};

const CLUSTER: &str = "prod";
const NODES: usize = 200;
const LIMIT: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_secs(2);

/// Everything that stands. Fields drop in order: callers before those they call.
struct Fixture {
    manager: Process,
    nodes: Api<Node>,
    proxy: Proxy,
    account: SeededAccount,
    moto: Moto,
    _api: ApiServer,
    _etcd: Etcd,
}

impl Fixture {
    async fn build(run: &Path) -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer136, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, NODES).await.expect("an account");
        let proxy = Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await;
        let proxy = proxy.expect("the proxy");
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", Version::V1_36, "127.94.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options)
            .await
            .expect("the API server");
        let client = api.client(&User::admin(), "routes-test").await.expect("a client");
        let nodes: Api<Node> = Api::all(client);
        let machines = account.instances.iter().enumerate();
        let created = stream::iter(machines)
            .map(|(number, machine)| create(&nodes, number, machine))
            .buffer_unordered(8);
        let created: Vec<()> = created.try_collect().await.expect("created");
        assert_eq!(created.len(), NODES);
        Self {
            manager: pod_routes::start_manager(run, &api, &account, &proxy, PERIOD).expect("the manager starts"),
            nodes,
            proxy,
            account,
            moto,
            _api: api,
            _etcd: etcd,
        }
    }

    async fn routes(&self) -> BTreeMap<String, String> {
        let routes = pod_routes::to_instances(&self.moto, &self.account.route_table_id).await;
        routes.expect("moto answers")
    }

    async fn terminate(&self, id: &str) {
        self.account
            .terminate(&self.moto, &[id])
            .await
            .expect("moto terminates it");
        self.proxy.instances_terminated(&[id]);
    }

    async fn delete_node(&self, number: usize) {
        let deleted = self.nodes.delete(&name(number), &DeleteParams::default()).await;
        deleted.expect("the Node is deleted");
    }

    /// How many Nodes say that they have their routes.
    async fn reachable(&self) -> usize {
        let nodes = self.nodes.list(&ListParams::default()).await.expect("listed");
        let says = |node: &&Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| {
                (
                    condition.type_.as_str(),
                    condition.status.as_str(),
                    condition.reason.as_deref(),
                ) == ("NetworkUnavailable", "False", Some("RouteCreated"))
            })
        };
        nodes.items.iter().filter(says).count()
    }

    /// Calls that moto carried out. It answers some of several CreateRoute at a time with 500, since each goes through the
    /// table; they are sent again.
    fn count(&self, action: &str) -> usize {
        self.proxy
            .calls()
            .iter()
            .filter(|call| call.action == action && call.succeeded())
            .count()
    }

    async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            let log = || self.manager.log_tail();
            assert!(self.manager.exit().is_none(), "the manager ended by itself:\n{}", log());
            assert!(started.elapsed() < LIMIT, "never: {what}\n{}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
    }
}

async fn created(fixture: &Fixture) {
    let wanted: BTreeMap<String, String> = fixture
        .account
        .instances
        .iter()
        .enumerate()
        .map(|(number, machine)| (range(number), machine.id.clone()))
        .collect();
    let what = format!("{NODES} routes are made");
    fixture
        .eventually(&what, async || fixture.routes().await == wanted)
        .await;
    let what = format!("{NODES} Nodes say so");
    fixture
        .eventually(&what, async || fixture.reachable().await == NODES)
        .await;
    assert_eq!(fixture.count("CreateRoute"), NODES, "one call for each");
    assert_eq!(fixture.count("ModifyInstanceAttribute"), NODES, "one call for each");
}

async fn repaired(fixture: &mut Fixture) {
    let deleted = pod_routes::delete(&fixture.moto, &fixture.account.route_table_id, &range(7)).await;
    deleted.expect("moto deletes it");
    let back = async || fixture.routes().await.contains_key(&range(7));
    fixture.eventually("a route deleted by hand is back", back).await;

    // The instance of a Node is gone; another one takes the Node's range.
    let new = fixture.account.add_instances(&fixture.moto, 1).await.expect("one more");
    let new = new.first().expect("one more").clone();
    let old = fixture.account.instances.first().expect("there").id.clone();
    fixture.terminate(&old).await;
    fixture.delete_node(0).await;
    create(&fixture.nodes, 0, &new).await.expect("created");
    let leads = async || fixture.routes().await.get(&range(0)) == Some(&new.id);
    fixture
        .eventually("the blackhole leads to the new instance", leads)
        .await;
    assert_eq!(fixture.count("DeleteRoute"), 0, "in one step");
}

async fn removed(fixture: &Fixture) {
    let third = fixture.account.instances.get(3).expect("there").id.clone();
    fixture.terminate(&third).await;
    for number in [1, 2, 3] {
        fixture.delete_node(number).await;
    }
    let gone = async || fixture.routes().await.len() == NODES - 3;
    fixture.eventually("the routes of removed Nodes are gone", gone).await;
    assert_eq!(fixture.count("DeleteRoute"), 3);
}

async fn quiet(fixture: &Fixture) {
    fixture
        .eventually("all the others are reachable", async || {
            fixture.reachable().await == NODES - 3
        })
        .await;
    tokio::time::sleep(PERIOD).await;
    let mark = fixture.proxy.mark();
    tokio::time::sleep(PERIOD * 3).await;
    let calls = fixture.proxy.calls_since(mark);
    let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    assert!(!actions.iter().any(|action| is_write(action)), "{actions:?}");
    assert!((2..=4).contains(&actions.len()), "one read in each pass: {actions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_200_nodes_are_made_repaired_and_removed() {
    let run = tempfile::tempdir().expect("a folder for the run");
    let mut fixture = Fixture::build(run.path()).await;
    created(&fixture).await;
    repaired(&mut fixture).await;
    removed(&fixture).await;
    quiet(&fixture).await;
}
