//! `/metrics` of both programs after the same work: Nodes, a Service, routes, tags, and a call that AWS throttles.
//!
//! Each family of the incumbent must have its type, its labels and its bounds here. Families of Go's runtime and of the
//! process are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use outrigger_aws_sim::{Fault, FaultHandle};
use outrigger_cluster_harness::kubelets::{Kubelet, NodeSpec};
use outrigger_cluster_harness::process::free_port;
use outrigger_cluster_harness::wait;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster, kubelet_instance, node_of};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{explained, page};

const LIMIT: Duration = Duration::from_secs(120);

/// Flags for both. The tagging controller runs only where it is named.
const FLAGS: [&str; 10] = [
    "--controllers=*,tagging",
    "--tags=team=a",
    "--resources=instance",
    "--configure-cloud-routes=true",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
    "--node-status-update-frequency=5s",
    "--node-monitor-period=2s",
    "--bind-address=127.0.0.1",
    "--authorization-always-allow-paths=/metrics",
];

const SERVER: &str =
    "`apiserver_*`, `aggregator_*`, `authenticated_user_requests`, `authentication_*`, `authorization_*`";
const ABOUT_METRICS: &str =
    "`cardinality_enforcement_*`, `disabled_metrics_total`, `hidden_metrics_total`, `registered_metrics_total`";
const REST_CLIENT: &str = "`rest_client_exec_plugin_*`, `rest_client_rate_limiter_duration_seconds`, \
                           `rest_client_request_size_bytes`, `rest_client_response_size_bytes`, \
                           `rest_client_transport_*`";

/// Families, or beginnings of their names, that differ, each with its row in `docs/parity.md`.
const DIFFERS: &[(&str, &str)] = &[
    ("aggregator_", SERVER),
    ("apiserver_", SERVER),
    ("authenticated_user_requests", SERVER),
    ("authentication_", SERVER),
    ("authorization_", SERVER),
    ("cardinality_enforcement_", ABOUT_METRICS),
    ("disabled_metrics_total", ABOUT_METRICS),
    ("hidden_metrics_total", ABOUT_METRICS),
    ("registered_metrics_total", ABOUT_METRICS),
    ("rest_client_exec_plugin_", REST_CLIENT),
    ("rest_client_rate_limiter_duration_seconds", REST_CLIENT),
    ("rest_client_request_size_bytes", REST_CLIENT),
    ("rest_client_response_size_bytes", REST_CLIENT),
    ("rest_client_transport_", REST_CLIENT),
    (
        "tagging_controller_initial_node_tagging_delay_seconds",
        "`tagging_controller_initial_node_tagging_delay_seconds`",
    ),
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
    /// Upper bounds of a histogram, as numbers are written here.
    bounds: BTreeSet<String>,
}

type Families = BTreeMap<String, Family>;

impl Family {
    /// Whether queries for the other family work for this one: it may have more bounds.
    fn serves(&self, other: &Self) -> bool {
        (&self.kind, &self.labels) == (&other.kind, &other.labels) && self.bounds.is_superset(&other.bounds)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_incumbents_metrics_have_their_names_labels_and_bounds_here() {
    let options = Options {
        name: "outrigger-incumbent-metrics-",
        service_range: "127.66.0.0/16",
        instances: 5,
        global: &[],
    };
    let cluster = SingleCluster::start(&options).await.expect("a cluster");
    let _silent = silent_node(&cluster).await;
    let documented = documented();

    let theirs = measure(&cluster, "incumbent", 0, &documented).await;
    let ours = measure(&cluster, "ours", 2, &documented).await;

    let mut differences = BTreeSet::new();
    for (name, family) in &theirs {
        let same = ours.get(name).is_some_and(|ours| ours.serves(family));
        if !same {
            println!("{name}: {family:?} in v1.37, {:?} here", ours.get(name));
            let listed = DIFFERS.iter().find(|(beginning, _)| name.starts_with(beginning));
            differences.insert(listed.map_or(name.as_str(), |(beginning, _)| beginning));
        }
    }
    let unknown = ours
        .keys()
        .filter(|name| !theirs.contains_key(*name) && !name.starts_with("outrigger_"));
    differences.extend(unknown.map(String::as_str));
    explained(differences, DIFFERS);

    let missing: Vec<&String> = documented.iter().filter(|name| !theirs.contains_key(*name)).collect();
    assert!(
        missing.is_empty(),
        "docs/metrics.md calls these the incumbent's: {missing:?}"
    );
}

/// The metrics of one manager after its work.
async fn measure(cluster: &SingleCluster, name: &str, first: usize, documented: &BTreeSet<String>) -> Families {
    let port = free_port().expect("a port");
    let own = [
        format!("--secure-port={port}"),
        format!("--leader-elect-resource-name={name}"),
    ];
    let flags: Vec<&str> = FLAGS.into_iter().chain(own.iter().map(String::as_str)).collect();
    let manager = match name {
        "incumbent" => cluster.incumbent(name, &flags).await,
        _ => cluster.manager(name, &flags),
    };
    let manager = manager.expect("it starts");
    let _lasts = work(cluster, &manager, first).await;

    let deadline = Instant::now() + LIMIT;
    let mut changes = 0;
    loop {
        changes += 1;
        change_lease(cluster, name, changes).await;
        let families = families(&scrape(port).await.unwrap_or_default());
        let complete = documented.iter().all(|name| families.contains_key(name));
        if complete || Instant::now() > deadline {
            manager.alive().expect("it runs");
            manager.stop(LIMIT).await.expect("stopped");
            return families;
        }
        sleep(Duration::from_millis(300)).await;
    }
}

/// Changes the lease of a manager, so that the next renewal conflicts and the manager reads its lease first. If the
/// change is stored after a renewal but before its answer, our manager gets it with the renewal and needs no read.
async fn change_lease(cluster: &SingleCluster, name: &str, number: u32) {
    let patch = json!({"metadata": {"annotations": {"change": number.to_string()}}});
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
    let patched = leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.expect("patched");
}

/// Gives a manager two Nodes and a Service, and makes calls of each kind fail. Dropping the result ends kubelets and
/// faults.
async fn work(cluster: &SingleCluster, manager: &Manager, first: usize) -> ([Kubelet; 2], [FaultHandle; 3]) {
    let name = manager.name();
    let kubelet = join(cluster, first).await;
    let ports = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
    cluster.create_service(name, &[], &ports).await.expect("created");
    cluster.served(1 + first / 2, manager, LIMIT).await.expect("served");
    until_initialized(cluster, manager).await;

    let fails = |action: &str, (status, code): (u16, &str), times| {
        let fault = Fault::on(action).error(status, code);
        cluster.proxy.add_fault(fault.by(name).times(times))
    };
    let refused = fails("CreateTags", (400, "InvalidParameterValue"), 1);
    let other = join(cluster, first + 1).await;
    until_initialized(cluster, manager).await;

    // v1.37 retries a throttled call twice. Ours retries a describe of instances longer, but leaves route tables to
    // the next pass.
    let throttled = (503, "RequestLimitExceeded");
    let instances = fails("DescribeInstances", throttled, 3);
    let tables = fails("DescribeRouteTables", throttled, 3);

    ([kubelet, other], [refused, instances, tables])
}

/// The families that `docs/metrics.md` calls the incumbent's, without those of the process.
fn documented() -> BTreeSet<String> {
    let page = page("metrics.md");
    let rows = page.lines().filter(|line| line.contains(" | the incumbent's | "));
    let names = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next().map(str::to_owned));
    let names: BTreeSet<String> = names.filter(|name| !is_of_the_process(name)).collect();
    assert!(names.len() > 25, "{names:?}");
    names
}

fn is_of_the_process(name: &str) -> bool {
    name.starts_with("go_") || name.starts_with("process_")
}

/// A Node of a running instance whose kubelet reports nothing.
async fn silent_node(cluster: &SingleCluster) -> Kubelet {
    let instance = cluster.account.instances.last().expect("an instance");
    let kubelet = Kubelet::start(&cluster.kube_config, node_of(instance))
        .await
        .expect("it joins");
    kubelet.stop();

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let unknown = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [unknown]}}));
    // A heartbeat that was on its way may still arrive.
    let is_silent = async || {
        let patched = nodes
            .patch_status(kubelet.name(), &PatchParams::default(), &patch)
            .await?;
        sleep(Duration::from_secs(1)).await;
        let now = nodes.get(kubelet.name()).await?;
        Ok::<_, kube::Error>(now.metadata.resource_version == patched.metadata.resource_version)
    };
    wait::until("silence of the Node", LIMIT, is_silent)
        .await
        .expect("in time");
    kubelet
}

async fn join(cluster: &SingleCluster, number: usize) -> Kubelet {
    let instance = &cluster.account.instances[number];
    let node = NodeSpec::external(&kubelet_instance(instance)).uninitialized();
    Kubelet::start(&cluster.kube_config, node).await.expect("it joins")
}

async fn until_initialized(cluster: &SingleCluster, manager: &Manager) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let deadline = Instant::now() + LIMIT;
    loop {
        let nodes = nodes.list(&ListParams::default()).await.expect("listed").items;
        let waits = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.provider_id.is_none());
        if !nodes.iter().any(waits) {
            return;
        }
        manager.alive().expect("it runs");
        assert!(Instant::now() < deadline, "{}", manager.log_tail());
        sleep(Duration::from_millis(100)).await;
    }
}

async fn scrape(port: u16) -> Option<String> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().expect("a URL"));
    config.accept_invalid_certs = true; // each manager has signed its own
    let client = kube::Client::try_from(config).expect("a client");
    let request = Request::get("/metrics").body(Vec::new()).expect("a request");
    client.request_text(request).await.ok()
}

fn families(text: &str) -> Families {
    let mut families = Families::new();
    for line in text.lines() {
        let declared = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '));
        if let Some((name, kind)) = declared {
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix).filter(|base| families.contains_key(*base)));
        let family = families.get_mut(base.unwrap_or(name)).expect("a type");
        for (label, value) in labels(rest) {
            if label == "le" {
                family.bounds.insert(value.parse::<f64>().expect("a bound").to_string());
            } else {
                family.labels.insert(label);
            }
        }
    }
    families.retain(|name, _| !is_of_the_process(name));
    families
}

/// `{name="value",…} 1`; a quote within a value has a backslash before it.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text.strip_prefix('{').unwrap_or_default();
    while let Some((name, value)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = value.find(|letter| {
            let end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            end
        });
        let end = end.expect("the end of a value");
        labels.push((name.trim_start_matches(',').to_owned(), value[..end].to_owned()));
        rest = &value[end + 1..];
    }
    labels
}
