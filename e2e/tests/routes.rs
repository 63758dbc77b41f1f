//! The route controller of our real binary, alone, against a real API server and moto's route tables.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use outrigger_aws_sim::is_write;
use outrigger_cluster_harness::cluster::Version;
use outrigger_e2e::pod_routes::{self, create, name, range};
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster};

const NODES: usize = 200;
const LIMIT: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_secs(2);
const FLAGS: [&str; 5] = [
    "--controllers=node-route-controller",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.200.0.0/16",
    "--route-reconciliation-period=2s",
    "--aws-api-budget-share=1",
];

/// Fields drop in order.
struct Fixture {
    manager: Manager,
    nodes: Api<Node>,
    cluster: SingleCluster,
}

impl Fixture {
    async fn build() -> Self {
        let options = Options {
            name: "outrigger-routes-",
            service_range: "127.94.0.0/16",
            instances: NODES,
            global: &[],
        };
        let cluster = SingleCluster::start_version(Version::V1_36, &options).await;
        let cluster = cluster.expect("a tenant");

        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let created = stream::iter(cluster.account.instances.iter().enumerate())
            .map(|(number, machine)| create(&nodes, number, machine))
            .buffer_unordered(8);
        let created: Vec<()> = created.try_collect().await.expect("created");
        assert_eq!(created.len(), NODES);

        Self {
            manager: cluster
                .manager("outrigger-manager", &FLAGS)
                .expect("the manager starts"),
            nodes,
            cluster,
        }
    }

    async fn routes(&self) -> BTreeMap<String, String> {
        let routes = pod_routes::to_instances(&self.cluster.moto, &self.cluster.account.route_table_id).await;
        routes.expect("moto answers")
    }

    async fn terminate(&self, id: &str) {
        self.cluster
            .account
            .terminate(&self.cluster.moto, &[id])
            .await
            .expect("moto terminates it");
        self.cluster.proxy.instances_terminated(&[id]);
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
        self.cluster
            .proxy
            .calls()
            .iter()
            .filter(|call| call.action == action && call.succeeded())
            .count()
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.manager.until(what, LIMIT, holds).await.expect("in time");
    }
}

async fn created(fixture: &Fixture) {
    let wanted: BTreeMap<String, String> = fixture
        .cluster
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
    let deleted = pod_routes::delete(
        &fixture.cluster.moto,
        &fixture.cluster.account.route_table_id,
        &range(7),
    )
    .await;
    deleted.expect("moto deletes it");
    let back = async || fixture.routes().await.contains_key(&range(7));
    fixture.eventually("a route deleted by hand is back", back).await;

    // The instance of a Node is gone; another one takes the Node's range.
    let new = fixture
        .cluster
        .account
        .add_instances(&fixture.cluster.moto, 1)
        .await
        .expect("one more");
    let new = new.first().expect("one more").clone();
    let old = fixture.cluster.account.instances.first().expect("there").id.clone();
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
    let third = fixture.cluster.account.instances.get(3).expect("there").id.clone();
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
    let calls = fixture.cluster.idle_passes(&fixture.manager, PERIOD).await;
    let calls = calls.expect("one read in each pass");
    let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    assert!(!actions.iter().any(|action| is_write(action)), "{actions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_200_nodes_are_made_repaired_and_removed() {
    let mut fixture = Fixture::build().await;
    created(&fixture).await;
    repaired(&mut fixture).await;
    removed(&fixture).await;
    quiet(&fixture).await;
}
