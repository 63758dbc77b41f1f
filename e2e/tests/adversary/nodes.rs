//! A worker's kubelet registers a Node that names the instance of another one. Our manager runs the node, service and route
//! controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_aws_sim::{Instance, Service};
use outrigger_cluster_harness::cluster::{User, Version};
use outrigger_e2e::pod_routes;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster};
use serde_json::{Value, json};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(60);
/// The attack has failed if it has no effect for so long: several periods of each controller.
const NO_EFFECT: Duration = Duration::from_secs(8);
const FLAGS: [&str; 7] = [
    "--leader-elect=false",
    "--controllers=cloud-node-controller,service-lb-controller,node-route-controller",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.200.0.0/16",
    "--route-reconciliation-period=2s",
    "--node-status-update-frequency=2s",
    "--aws-api-budget-share=1",
];
/// Services choose their targets by this label. A kubelet may set it on its own Node.
const ROLE: (&str, &str) = ("role", "edge");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_gains_nothing_by_the_provider_id_of_another_instance() {
    let options = Options {
        name: "outrigger-adversary-",
        service_range: "127.76.0.0/16",
        instances: 4,
        global: &[],
    };
    let cluster = SingleCluster::start_version(Version::V1_36, &options)
        .await
        .expect("a cluster");
    let [edge, own, honest, spare] = &cluster.account.instances[..] else {
        panic!("four instances");
    };
    let fixture = Fixture::start(&cluster, edge, honest).await;

    // The name that EC2 gave to its own instance, and the ID of one of the cluster that has no Node.
    fixture.attack(&own.private_dns_name, spare).await;
    fixture
        .is_older_than_the_honest_node(&own.private_dns_name, spare)
        .await;
    // A name of its own choice, and the ID of an instance that has a Node.
    fixture.attack("worker-9", honest).await;
}

struct Fixture<'a> {
    cluster: &'a SingleCluster,
    manager: Manager,
    nodes: Api<Node>,
    /// The targets of the Service and the routes that have to stay.
    targets: BTreeSet<String>,
    routes: BTreeMap<String, String>,
}

impl<'a> Fixture<'a> {
    async fn start(cluster: &'a SingleCluster, edge: &Instance, honest: &Instance) -> Self {
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        register(&nodes, &edge.private_dns_name, edge, "10.200.1.0/24", true).await;
        register(&nodes, &honest.private_dns_name, honest, "10.200.2.0/24", false).await;
        let labels = format!("{}={}", ROLE.0, ROLE.1);
        let spec = json!({"ports": [{"port": 80}]});
        let created = cluster
            .create_service("web", &[("target-node-labels", &labels)], &spec)
            .await;
        created.expect("created");

        let fixture = Self {
            manager: cluster.manager("manager", &FLAGS).expect("a manager"),
            cluster,
            nodes,
            targets: BTreeSet::from([edge.id.clone()]),
            routes: [("10.200.1.0/24", edge), ("10.200.2.0/24", honest)]
                .map(|(range, instance)| (range.to_owned(), instance.id.clone()))
                .into(),
        };
        fixture
            .until("the Service has its target, and the Nodes their routes", async || {
                fixture.is_whole().await
            })
            .await;
        fixture
    }

    async fn is_whole(&self) -> bool {
        self.targets_now().await == self.targets && self.routes_now().await == self.routes
    }

    /// A kubelet registers a Node of this name with the provider ID of an instance that is not its own.
    async fn attack(&self, name: &str, victim: &Instance) {
        let own: Api<Node> = Api::all(self.kubelet(name).await);
        register(&own, name, victim, "10.200.9.0/24", true).await;

        sleep(NO_EFFECT).await;
        assert_eq!(self.targets_now().await, self.targets, "{name}");
        assert_eq!(self.routes_now().await, self.routes, "{name}");
        let addresses = serde_json::to_value(self.nodes.get(name).await.expect("it is there").status).expect("JSON");
        assert!(!addresses.to_string().contains(&victim.private_ip), "{addresses}");

        self.until("an Event names the Node", async || self.refusal(name).await.is_some())
            .await;
        let message = self.refusal(name).await.unwrap_or_default();
        assert!(message.contains(&victim.id), "{message}");
        let deleted = self.nodes.delete(name, &DeleteParams::default()).await;
        deleted.expect("deleted");
        self.until("all is as before", async || self.is_whole().await).await;
    }

    /// A kubelet names an instance that has no Node yet. The honest Node comes later.
    async fn is_older_than_the_honest_node(&self, name: &str, victim: &Instance) {
        let own: Api<Node> = Api::all(self.kubelet(name).await);
        register(&own, name, victim, "10.200.9.0/24", false).await;
        sleep(Duration::from_secs(2)).await;
        register(&self.nodes, &victim.private_dns_name, victim, "10.200.4.0/24", true).await;

        let (mut targets, mut routes) = (self.targets.clone(), self.routes.clone());
        targets.insert(victim.id.clone());
        routes.insert("10.200.4.0/24".to_owned(), victim.id.clone());
        self.until("the honest Node has its place", async || {
            self.targets_now().await == targets && self.routes_now().await == routes
        })
        .await;

        for name in [name, &victim.private_dns_name] {
            self.nodes
                .delete(name, &DeleteParams::default())
                .await
                .expect("deleted");
        }
        self.until("all is as before", async || self.is_whole().await).await;
    }

    /// A client with the credentials of the kubelet of this Node.
    async fn kubelet(&self, name: &str) -> Client {
        let user = User::new(format!("system:node:{name}")).in_group("system:nodes");
        self.cluster.client_of(&user).await.expect("its credentials")
    }

    /// The message of the Event about the Node of this name.
    async fn refusal(&self, name: &str) -> Option<String> {
        let events: Api<Event> = Api::all(self.cluster.client.clone());
        let events = events.list(&ListParams::default()).await.expect("Events");
        let mut refusals = events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("ProviderIDRefused"));
        let event = refusals.find(|event| event.involved_object.name.as_deref() == Some(name))?;
        event.message
    }

    async fn targets_now(&self) -> BTreeSet<String> {
        let answer = self
            .cluster
            .moto
            .call(&Service::Elb, "DescribeLoadBalancers", Default::default());
        let answer = answer.await.expect("an answer");
        let balancers = answer.items("LoadBalancerDescriptions").iter();
        let instances = balancers.flat_map(|balancer| balancer.items("Instances"));
        instances
            .map(|instance| instance.value("InstanceId").to_owned())
            .collect()
    }

    async fn routes_now(&self) -> BTreeMap<String, String> {
        let table = &self.cluster.account.route_table_id;
        pod_routes::to_instances(&self.cluster.moto, table)
            .await
            .expect("routes")
    }

    async fn until(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.manager.until(what, LIMIT, holds).await.expect("in time");
    }
}

/// Creates a Ready Node as its kubelet does.
async fn register(nodes: &Api<Node>, name: &str, instance: &Instance, range: &str, is_edge: bool) {
    let labels: Value = match is_edge {
        true => json!({ROLE.0: ROLE.1}),
        false => json!({}),
    };
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": instance.provider_id(), "podCIDR": range, "podCIDRs": [range]},
    });
    let node = serde_json::from_value(node).expect("a Node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let patched = nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
        .await;
    patched.expect("Ready");
}
