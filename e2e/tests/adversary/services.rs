//! A user of one namespace creates Services that are as large as the API server takes them.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Namespace, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{User, Version};
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster, has_address};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const FLAGS: [&str; 3] = [
    "--leader-elect=false",
    "--controllers=service-lb-controller",
    "--aws-api-budget-share=1",
];
const TEAM: &str = "team-a";
/// Half of them have a load balancer's type, and annotations that look like those of load balancers.
const SERVICES: usize = 200;
/// All annotations of an object have at most 256 KiB.
const ANNOTATION: usize = 250_000;
const ADDRESSES: usize = 10_000;
/// Their limit of memory: a page of a list, and less than the 80 MB that they have.
const COST: u64 = 60 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_a_namespace_cannot_fill_the_managers_memory() {
    let options = Options {
        name: "outrigger-adversary-services-",
        service_range: "127.75.0.0/16",
        instances: 1,
        global: &[],
    };
    let cluster = SingleCluster::start_version(Version::V1_36, &options)
        .await
        .expect("a cluster");
    let before = peak(&cluster, "before", async || true).await;

    let user = team_user(&cluster).await;
    let services: Api<Service> = Api::namespaced(user, TEAM);
    let created = stream::iter(0..SERVICES).map(|number| {
        let services = services.clone();
        async move { services.create(&PostParams::default(), &fat(number)).await.map(drop) }
    });
    let created: Vec<()> = created.buffer_unordered(4).try_collect().await.expect("created");
    assert_eq!(created.len(), SERVICES);

    let is_refused = async || {
        let message = refusal(&cluster).await;
        message.is_some_and(|message| message.contains("24 KiB"))
    };
    let after = peak(&cluster, "after", is_refused).await;
    println!(
        "peak of the manager: {} KiB before, {} KiB after",
        before >> 10,
        after >> 10
    );
    assert!(after < before + COST, "{before} B before, {after} B after");
}

/// The most memory of a new manager, until it has given a new Service its load balancer, and `also` holds.
async fn peak(cluster: &SingleCluster, name: &str, also: impl AsyncFnMut() -> bool) -> u64 {
    let manager: Manager = cluster.manager(name, &FLAGS).expect("a manager");
    let spec = json!({"ports": [{"port": 80}]});
    cluster.create_service(name, &[], &spec).await.expect("created");
    let served = async || {
        let services = cluster.list_services().await.expect("listed");
        let mut named = services
            .iter()
            .filter(|service| service.metadata.name.as_deref() == Some(name));
        named.any(has_address)
    };
    manager
        .until("the Service of another user has its address", LIMIT, served)
        .await
        .expect("served");
    let told = manager
        .until("an Event names a Service of the attacker", LIMIT, also)
        .await;
    told.expect("told");
    let peak = manager.peak_memory().expect("it runs");
    manager.kill().await.expect("killed");
    peak
}

/// A user who may write Services in one namespace, and nothing else.
async fn team_user(cluster: &SingleCluster) -> Client {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    create(&namespaces, json!({"metadata": {"name": TEAM}})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["create"]}]);
    let roles: Api<Role> = Api::namespaced(cluster.client.clone(), TEAM);
    create(&roles, json!({"metadata": {"name": "services"}, "rules": rules})).await;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), TEAM);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "services"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "services"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": TEAM}],
    });
    create(&bindings, binding).await;
    cluster.client_of(&User::new(TEAM)).await.expect("its credentials")
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

/// The message of an Event about a Service of the attacker.
async fn refusal(cluster: &SingleCluster) -> Option<String> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), TEAM);
    let events = events.list(&ListParams::default()).await.expect("Events");
    let mut failures = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("SyncLoadBalancerFailed"));
    failures.find_map(|event| event.message)
}

fn fat(number: usize) -> Service {
    let (kind, key) = match number % 2 {
        0 => ("ClusterIP", "example.com/notes"),
        _ => (
            "LoadBalancer",
            "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags",
        ),
    };
    let addresses: Vec<String> = (0..ADDRESSES)
        .map(|number| format!("10.1.{}.{}", number / 250, number % 250))
        .collect();
    let service = json!({
        "metadata": {"name": format!("fat-{number}"), "annotations": {key: "x".repeat(ANNOTATION)}},
        "spec": {"type": kind, "ports": [{"port": 80}], "externalIPs": addresses},
    });
    serde_json::from_value(service).expect("a Service")
}
