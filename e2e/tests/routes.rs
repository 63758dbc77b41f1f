//! The route controller of our real binary, alone, against a real API server and moto's route tables.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use outrigger_e2e::aws::query::Parameters;
use outrigger_e2e::aws::{Caller, Instance, Moto, Proxy, Service, World, is_write};
use outrigger_e2e::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_e2e::process::{Launch, Process};
use outrigger_e2e::stage::Binaries;
use outrigger_e2e::tools::{Tool, Tools};
use serde_json::json;

const CLUSTER: &str = "prod";
const NODES: usize = 200;
const LIMIT: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_secs(2);

/// Everything that stands. Fields drop in order: callers before those they call.
struct Ground {
    manager: Process,
    nodes: Api<Node>,
    proxy: Proxy,
    world: World,
    moto: Moto,
    _api: ApiServer,
    _etcd: Etcd,
}

impl Ground {
    async fn build(run: &Path) -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer136, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let world = World::seed(&moto, CLUSTER, NODES).await.expect("an account");
        let proxy = Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await;
        let proxy = proxy.expect("the proxy");
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("tenant", Version::V1_36, "127.94.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options)
            .await
            .expect("the API server");
        let client = api.client(&User::admin(), "routes-test").await.expect("a client");
        let nodes: Api<Node> = Api::all(client);
        let machines = world.instances.iter().enumerate();
        let created: Vec<()> = stream::iter(machines)
            .map(|(number, machine)| create(&nodes, number, machine))
            .buffer_unordered(8)
            .collect()
            .await;
        assert_eq!(created.len(), NODES);
        Self {
            manager: manager(run, &api, &world, &proxy),
            nodes,
            proxy,
            world,
            moto,
            _api: api,
            _etcd: etcd,
        }
    }

    /// The instance routes of the table, as the proxy's callers see them but for blackholes: range and instance.
    async fn routes(&self) -> BTreeMap<String, String> {
        let call = Parameters::from_iter([("RouteTableId.1", self.world.route_table_id.as_str())]);
        let answer = self.moto.call(&Service::Ec2, "DescribeRouteTables", call).await;
        let answer = answer.expect("moto answers");
        let routes = answer.find("routeSet").expect("a table has routes").children.iter();
        routes
            .filter(|route| !route.value("instanceId").is_empty())
            .map(|route| {
                (
                    route.value("destinationCidrBlock").into(),
                    route.value("instanceId").into(),
                )
            })
            .collect()
    }

    async fn delete_route(&self, cidr: &str) {
        let table = self.world.route_table_id.as_str();
        let call = Parameters::from_iter([("RouteTableId", table), ("DestinationCidrBlock", cidr)]);
        let deleted = self.moto.call(&Service::Ec2, "DeleteRoute", call).await;
        deleted.expect("moto deletes it");
    }

    async fn terminate(&self, id: &str) {
        self.world
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

fn name(number: usize) -> String {
    format!("node-{number}")
}

fn range(number: usize) -> String {
    format!("10.200.{number}.0/24")
}

async fn create(nodes: &Api<Node>, number: usize, machine: &Instance) {
    let node = json!({
        "metadata": {"name": name(number)},
        "spec": {"providerID": machine.provider_id(), "podCIDR": range(number), "podCIDRs": [range(number)]},
    });
    let node = serde_json::from_value(node).expect("a Node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
}

fn manager(run: &Path, api: &ApiServer, world: &World, proxy: &Proxy) -> Process {
    let config = run.join("cloud.conf");
    std::fs::write(&config, world.cloud_config(proxy.url())).expect("written");
    let caller = Caller::new("outrigger-manager");
    proxy.add_caller(&caller);
    let kubeconfig = api.kubeconfig(&User::admin()).expect("kubeconfig");
    let binary = Binaries::one("outrigger-manager").expect("built");
    let mut launch = Launch::new("outrigger-manager", binary).arguments([
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--cluster-name={CLUSTER}"),
        "--controllers=node-route-controller".to_owned(),
        // The whole of the simulated account, which nobody else uses.
        "--aws-api-budget-share=1".to_owned(),
        "--cluster-cidr=10.200.0.0/16".to_owned(),
        format!("--route-reconciliation-period={}s", PERIOD.as_secs()),
        "--secure-port=0".to_owned(),
    ]);
    for (variable, value) in caller.environment(proxy.url()) {
        launch = launch.environment(variable, value);
    }
    Process::start(&launch, run).expect("the manager starts")
}

async fn created(ground: &Ground) {
    let wanted: BTreeMap<String, String> = ground
        .world
        .instances
        .iter()
        .enumerate()
        .map(|(number, machine)| (range(number), machine.id.clone()))
        .collect();
    let what = format!("{NODES} routes are made");
    ground.eventually(&what, async || ground.routes().await == wanted).await;
    let what = format!("{NODES} Nodes say so");
    ground
        .eventually(&what, async || ground.reachable().await == NODES)
        .await;
    assert_eq!(ground.count("CreateRoute"), NODES, "one call for each");
    assert_eq!(ground.count("ModifyInstanceAttribute"), NODES, "one call for each");
}

async fn repaired(ground: &mut Ground) {
    ground.delete_route(&range(7)).await;
    let back = async || ground.routes().await.contains_key(&range(7));
    ground.eventually("a route deleted by hand is back", back).await;

    // The instance of a Node is gone; another one takes the Node's range.
    let new = ground.world.add_instances(&ground.moto, 1).await.expect("one more");
    let new = new.first().expect("one more").clone();
    let old = ground.world.instances.first().expect("there").id.clone();
    ground.terminate(&old).await;
    ground.delete_node(0).await;
    create(&ground.nodes, 0, &new).await;
    let leads = async || ground.routes().await.get(&range(0)) == Some(&new.id);
    ground
        .eventually("the blackhole leads to the new instance", leads)
        .await;
    assert_eq!(ground.count("DeleteRoute"), 0, "in one step");
}

async fn removed(ground: &Ground) {
    let third = ground.world.instances.get(3).expect("there").id.clone();
    ground.terminate(&third).await;
    for number in [1, 2, 3] {
        ground.delete_node(number).await;
    }
    let gone = async || ground.routes().await.len() == NODES - 3;
    ground.eventually("the routes of removed Nodes are gone", gone).await;
    assert_eq!(ground.count("DeleteRoute"), 3);
}

async fn quiet(ground: &Ground) {
    ground
        .eventually("all the others are reachable", async || {
            ground.reachable().await == NODES - 3
        })
        .await;
    tokio::time::sleep(PERIOD).await;
    let mark = ground.proxy.mark();
    tokio::time::sleep(PERIOD * 3).await;
    let calls = ground.proxy.calls_since(mark);
    let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    assert!(!actions.iter().any(|action| is_write(action)), "{actions:?}");
    assert!((2..=4).contains(&actions.len()), "one read in each pass: {actions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_200_nodes_are_made_repaired_and_removed() {
    let run = tempfile::tempdir().expect("a folder for the run");
    let mut ground = Ground::build(run.path()).await;
    created(&ground).await;
    repaired(&mut ground).await;
    removed(&ground).await;
    quiet(&ground).await;
}
