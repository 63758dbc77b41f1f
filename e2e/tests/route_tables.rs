//! Several route tables with the cluster's tag, as where each zone has one: the incumbent does nothing at all there,
//! and our route controller keeps all of them alike, and no others.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Call, Service};
use outrigger_e2e::pod_routes::{self, name, range};
use outrigger_e2e::single_cluster::{CLUSTER, Manager, Options, SingleCluster};
use tokio::time::sleep;

const NODES: usize = 12;
const LIMIT: Duration = Duration::from_secs(120);
const PERIOD: Duration = Duration::from_secs(2);
const FLAGS: [&str; 5] = [
    "--leader-elect=false",
    "--controllers=node-route-controller",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.200.0.0/16",
    "--route-reconciliation-period=2s",
];

/// A table's routes: destination, and where it leads.
type Routes = BTreeMap<String, String>;

/// The tables of the account, by what they are.
struct Tables {
    /// With the cluster's tag: one that the cluster owns, and one that it shares.
    tagged: [String; 2],
    /// Without a tag until the test gives it one.
    later: String,
    /// None of the cluster's: the main table, another cluster's, and another VPC's with this cluster's tag.
    others: [String; 3],
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_with_the_clusters_tag_is_kept_where_the_incumbent_keeps_none() {
    let options = Options {
        name: "outrigger-route-tables-",
        service_range: "127.82.0.0/16",
        instances: NODES,
        global: &[],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    let tables = Tables::make(&cluster).await;
    for number in 0..NODES {
        create_node(&cluster, number).await;
    }
    let before = tables.read(&cluster).await;
    let config = format!("--cloud-config={}", without_table(&cluster).display());

    incumbent_gives_up(&cluster, &config).await;
    assert_eq!(tables.read(&cluster).await, before);

    let flags: Vec<&str> = FLAGS
        .into_iter()
        .chain([&*config, "--aws-api-budget-share=1"])
        .collect();
    let ours = cluster.manager("ours", &flags).expect("the manager starts");
    let fixture = Fixture {
        cluster: &cluster,
        tables: &tables,
        before,
        ours,
    };
    fixture.made().await;
    fixture.repaired().await;
    fixture.a_table_that_gets_the_tag_is_filled().await;
    fixture.removed().await;
    fixture.quiet().await;
}

/// The incumbent reads the tables in every pass, finds more than one, and does nothing.
async fn incumbent_gives_up(cluster: &SingleCluster, config: &str) {
    let flags: Vec<&str> = FLAGS.into_iter().chain([config]).collect();
    let incumbent = cluster.incumbent("incumbent", &flags).await.expect("it starts");
    let passes = |calls: &[Call]| {
        let reads = calls.iter().filter(|call| call.action == "DescribeRouteTables");
        (reads.count() >= 3).then_some(())
    };
    cluster
        .proxy
        .wait_for("three passes of the incumbent", LIMIT, passes)
        .await
        .expect("passes");
    incumbent.alive().expect("it runs");
    incumbent.kill().await.expect("killed");
    let log = incumbent.log().expect("its log");
    assert!(log.contains("found multiple matching AWS route tables"), "{log}");
    let calls = cluster.proxy.calls();
    let writes: Vec<&Call> = calls.iter().filter(|call| call.is_write()).collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(reachable(cluster).await, 0);
}

/// Our manager at work.
struct Fixture<'a> {
    cluster: &'a SingleCluster,
    tables: &'a Tables,
    /// The routes of all tables when it started.
    before: BTreeMap<String, Routes>,
    ours: Manager,
}

impl Fixture<'_> {
    async fn made(&self) {
        let wanted = self.with_routes(&self.tables.tagged, 0..NODES);
        self.come_about("the routes of both tables", &wanted).await;
        self.eventually("all Nodes say so", async || reachable(self.cluster).await == NODES)
            .await;
        assert_eq!(self.done("CreateRoute", 0), 2 * NODES, "one for each Node and table");
        assert_eq!(self.done("ModifyInstanceAttribute", 0), NODES, "one for each instance");
    }

    /// In one table a route is deleted by hand, in the other one is led elsewhere: each comes back where it was
    /// changed.
    async fn repaired(&self) {
        let [first, second] = &self.tables.tagged;
        let mark = self.cluster.proxy.mark();
        let (four, five) = (range(4), range(5));
        let deletion = [("RouteTableId", second.as_str()), ("DestinationCidrBlock", &*four)];
        ec2(self.cluster, "DeleteRoute", &deletion).await;
        let elsewhere = self.instance(6);
        let change = [
            ("RouteTableId", first.as_str()),
            ("DestinationCidrBlock", &*five),
            ("InstanceId", elsewhere),
        ];
        ec2(self.cluster, "ReplaceRoute", &change).await;
        let wanted = self.with_routes(&self.tables.tagged, 0..NODES);
        self.come_about("what was changed by hand", &wanted).await;
        let expected = [
            ["CreateRoute".into(), second.clone(), four],
            ["ReplaceRoute".into(), first.clone(), five],
        ];
        assert_eq!(self.route_writes(mark), expected);
    }

    async fn a_table_that_gets_the_tag_is_filled(&self) {
        tag(self.cluster, &self.tables.later, CLUSTER).await;
        let wanted = self.with_routes(&self.tables.all_three(), 0..NODES);
        self.come_about("the routes of a third table", &wanted).await;
    }

    async fn removed(&self) {
        let mark = self.cluster.proxy.mark();
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let deleted = nodes.delete(&name(NODES - 1), &DeleteParams::default()).await;
        deleted.expect("deleted");
        let wanted = self.with_routes(&self.tables.all_three(), 0..NODES - 1);
        self.come_about("a removed Node's routes gone from all tables", &wanted)
            .await;
        let mut expected = self
            .tables
            .all_three()
            .map(|table| ["DeleteRoute".into(), table, range(NODES - 1)]);
        expected.sort();
        assert_eq!(self.route_writes(mark), expected);
    }

    /// However many tables there are, a pass without changes is one read.
    async fn quiet(&self) {
        sleep(PERIOD).await;
        let calls = self.cluster.idle_passes(&self.ours, PERIOD).await;
        let calls = calls.expect("one read in each pass");
        let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
        assert!(
            actions.iter().all(|action| *action == "DescribeRouteTables"),
            "{actions:?}"
        );
    }

    /// All tables as they were, and in these ones the routes of these Nodes besides.
    fn with_routes(&self, tables: &[String], numbers: std::ops::Range<usize>) -> BTreeMap<String, Routes> {
        let mut wanted = self.before.clone();
        for table in tables {
            let routes = wanted.get_mut(table).expect("a table of the account");
            routes.extend(
                numbers
                    .clone()
                    .map(|number| (range(number), self.instance(number).into())),
            );
        }
        wanted
    }

    fn instance(&self, number: usize) -> &str {
        &self.cluster.account.instances[number].id
    }

    /// Writes to AWS that were carried out since. moto answers some of several CreateRoute at a time with 500, since
    /// each goes through the table; they are sent again.
    fn writes(&self, mark: u64) -> Vec<Call> {
        let mut calls = self.cluster.proxy.calls_since(mark);
        calls.retain(|call| call.is_write() && call.succeeded());
        calls
    }

    /// Those of them that concern routes, by action, table and destination. The cache of an instance may be half a
    /// minute old, so that its source/destination check may be turned off once more.
    fn route_writes(&self, mark: u64) -> Vec<[String; 3]> {
        let mut writes: Vec<[String; 3]> = self.writes(mark).iter().map(place).collect();
        writes.retain(|[action, ..]| action != "ModifyInstanceAttribute");
        writes.sort();
        writes
    }

    fn done(&self, action: &str, mark: u64) -> usize {
        self.writes(mark).iter().filter(|call| call.action == action).count()
    }

    async fn come_about(&self, what: &str, wanted: &BTreeMap<String, Routes>) {
        self.eventually(what, async || self.tables.read(self.cluster).await == *wanted)
            .await;
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        let held = self.ours.until(what, LIMIT, holds).await;
        if let Err(error) = held {
            panic!("{error}\n{:#?}", self.tables.read(self.cluster).await);
        }
    }
}

impl Tables {
    async fn make(cluster: &SingleCluster) -> Self {
        let vpc = ec2(cluster, "CreateVpc", &[("CidrBlock", "10.99.0.0/16")]).await;
        let elsewhere = table(cluster, vpc.find("vpc").expect("a VPC").value("vpcId")).await;
        let here = &cluster.account.vpc_id;
        let tables = Self {
            tagged: [table(cluster, here).await, table(cluster, here).await],
            later: table(cluster, here).await,
            others: [
                cluster.account.route_table_id.clone(),
                table(cluster, here).await,
                elsewhere,
            ],
        };
        let [_, foreign, elsewhere] = &tables.others;
        for (table, cluster_id) in [
            (&tables.tagged[0], CLUSTER),
            (&tables.tagged[1], CLUSTER),
            (elsewhere, CLUSTER),
            (foreign, "other"),
        ] {
            tag(cluster, table, cluster_id).await;
        }
        tables
    }

    fn all_three(&self) -> [String; 3] {
        let [first, second] = self.tagged.clone();
        [first, second, self.later.clone()]
    }

    async fn read(&self, cluster: &SingleCluster) -> BTreeMap<String, Routes> {
        let mut read = BTreeMap::new();
        for id in self.all_three().iter().chain(&self.others) {
            let answer = ec2(cluster, "DescribeRouteTables", &[("RouteTableId.1", id)]).await;
            let routes = answer.items("routeSet").iter().map(|route| {
                let target = ["instanceId", "gatewayId"].map(|field| route.value(field)).concat();
                (route.value("destinationCidrBlock").to_owned(), target)
            });
            read.insert(id.clone(), routes.collect());
        }
        read
    }
}

/// Action, table and destination of a write.
fn place(call: &Call) -> [String; 3] {
    let of = |key: &str| call.parameters.get(key).unwrap_or_default().to_owned();
    [call.action.clone(), of("RouteTableId"), of("DestinationCidrBlock")]
}

async fn ec2(cluster: &SingleCluster, action: &str, parameters: &[(&str, &str)]) -> Element {
    let parameters: Parameters = parameters.iter().copied().collect();
    let answer = cluster.moto.call(&Service::Ec2, action, parameters).await;
    answer.expect("moto carries it out")
}

async fn table(cluster: &SingleCluster, vpc: &str) -> String {
    let made = ec2(cluster, "CreateRouteTable", &[("VpcId", vpc)]).await;
    made.find("routeTable")
        .expect("a table")
        .value("routeTableId")
        .to_owned()
}

async fn tag(cluster: &SingleCluster, resource: &str, cluster_id: &str) {
    let key = format!("kubernetes.io/cluster/{cluster_id}");
    let tag = [
        ("ResourceId.1", resource),
        ("Tag.1.Key", &*key),
        ("Tag.1.Value", "shared"),
    ];
    ec2(cluster, "CreateTags", &tag).await;
}

/// A cloud config that names no table, so that tags choose them.
fn without_table(cluster: &SingleCluster) -> PathBuf {
    let config = cluster.account.cloud_config(cluster.proxy.url());
    let lines = config.lines().filter(|line| !line.starts_with("RouteTableID"));
    let file = cluster.run().join("tags.conf");
    std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).expect("written");
    file
}

async fn create_node(cluster: &SingleCluster, number: usize) {
    let nodes = Api::all(cluster.client.clone());
    let created = pod_routes::create(&nodes, number, &cluster.account.instances[number]).await;
    created.expect("created");
}

/// How many Nodes say that they have their routes.
async fn reachable(cluster: &SingleCluster) -> usize {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let nodes = nodes.list(&ListParams::default()).await.expect("listed");
    let says = |node: &&Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| (condition.type_.as_str(), condition.status.as_str()) == ("NetworkUnavailable", "False"))
    };
    nodes.items.iter().filter(says).count()
}
