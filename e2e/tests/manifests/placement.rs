//! Which Nodes the manager's DaemonSet runs on, as the real DaemonSet controller decides it, and that the webhook may run
//! there too.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::rendered;
use super::test_cluster::TestCluster;

const LIMIT: Duration = Duration::from_secs(60);
const ROLE: &str = "node-role.kubernetes.io/";
const UNINITIALIZED: (&str, &str, &str) = ("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule");

/// A Node of a distribution: name, role labels below [`ROLE`] with their value, and taints (key, value, effect).
struct Case {
    name: &'static str,
    roles: &'static [&'static str],
    value: &'static str,
    taints: &'static [(&'static str, &'static str, &'static str)],
}

/// Labels and taints as each distribution sets them: kubeadm's constants and kOps' nodelabels, which agree, RKE2's and
/// K3s' server start, Rancher's planner for dedicated roles, RKE1's host labels and taints.
const CONTROL_PLANES: [Case; 6] = [
    Case {
        name: "kubeadm-and-kops",
        roles: &["control-plane"],
        value: "",
        taints: &[
            ("node-role.kubernetes.io/control-plane", "", "NoSchedule"),
            UNINITIALIZED,
        ],
    },
    Case {
        name: "kubeadm-1-23",
        roles: &["control-plane", "master"],
        value: "",
        taints: &[("node-role.kubernetes.io/master", "", "NoSchedule"), UNINITIALIZED],
    },
    Case {
        name: "rke2",
        roles: &["control-plane", "etcd", "master"],
        value: "true",
        taints: &[("CriticalAddonsOnly", "true", "NoExecute"), UNINITIALIZED],
    },
    Case {
        name: "rke2-by-rancher",
        roles: &["control-plane", "etcd"],
        value: "true",
        taints: &[
            ("node-role.kubernetes.io/control-plane", "", "NoSchedule"),
            ("node-role.kubernetes.io/etcd", "", "NoExecute"),
            UNINITIALIZED,
        ],
    },
    Case {
        name: "k3s",
        roles: &["control-plane", "master"],
        value: "true",
        taints: &[("CriticalAddonsOnly", "true", "NoExecute")],
    },
    Case {
        name: "rke1",
        roles: &["controlplane", "etcd"],
        value: "true",
        taints: &[
            ("node-role.kubernetes.io/controlplane", "true", "NoSchedule"),
            ("node-role.kubernetes.io/etcd", "true", "NoExecute"),
            UNINITIALIZED,
        ],
    },
];

const OTHERS: [Case; 3] = [
    Case {
        name: "worker",
        roles: &["worker"],
        value: "true",
        taints: &[],
    },
    Case {
        name: "etcd-only",
        roles: &["etcd"],
        value: "true",
        taints: &[("node-role.kubernetes.io/etcd", "true", "NoExecute")],
    },
    Case {
        name: "no-role",
        roles: &[],
        value: "",
        taints: &[],
    },
];

fn node(case: &Case) -> Node {
    let labels: serde_json::Map<String, Value> = case
        .roles
        .iter()
        .map(|role| (format!("{ROLE}{role}"), json!(case.value)))
        .collect();
    let taints: Vec<Value> = case
        .taints
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
        .collect();
    serde_json::from_value(json!({"metadata": {"name": case.name, "labels": labels}, "spec": {"taints": taints}}))
        .expect("a Node")
}

/// The Node that the DaemonSet controller made a Pod for: it writes the name into the Pod's affinity, and the scheduler
/// binds it.
fn node_of(pod: &Pod) -> String {
    let value = serde_json::to_value(pod).expect("a Pod");
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let name = value.pointer(&format!("{terms}/0/matchFields/0/values/0"));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}

async fn apply_daemon_set(tools: &Tools, admin: &Client) {
    let objects = rendered(tools, "base").await;
    let is_needed = |object: &&Value| {
        object["kind"] == "DaemonSet"
            || (object["kind"] == "ServiceAccount" && object["metadata"]["namespace"] == "kube-system")
    };
    let needed: Vec<Value> = objects.iter().filter(is_needed).cloned().collect();
    assert_eq!(needed.len(), 2, "the DaemonSet and its service account");
    manifests::apply(admin, &needed).await.expect("applied");
}

/// Waits until the controller has observed the DaemonSet and made all Pods that it wants.
async fn placed(admin: &Client) -> Vec<String> {
    let sets: Api<DaemonSet> = Api::namespaced(admin.clone(), "kube-system");
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "kube-system");
    let made = async || {
        let status = sets.get("outrigger-manager").await.expect("the DaemonSet").status;
        let wanted = status.as_ref().map_or(0, |status| status.desired_number_scheduled);
        let label = ListParams::default().labels("app.kubernetes.io/name=outrigger-manager");
        let mut nodes: Vec<String> = pods
            .list(&label)
            .await
            .expect("Pods")
            .items
            .iter()
            .map(node_of)
            .collect();
        nodes.sort();
        let is_observed = status.is_some_and(|status| status.observed_generation.is_some());
        if is_observed && wanted > 0 && usize::try_from(wanted) == Ok(nodes.len()) {
            return Ok(Some(nodes));
        }
        Err(format!("{wanted} Pods wanted, {} made: {nodes:?}", nodes.len()))
    };
    wait::until("all Pods", LIMIT, made).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_set_runs_on_the_control_plane_nodes_of_every_distribution_and_nowhere_else() {
    let cluster = TestCluster::start("placement", "127.92.0.0/16").await;
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    for case in CONTROL_PLANES.iter().chain(&OTHERS) {
        nodes.create(&PostParams::default(), &node(case)).await.expect("a Node");
    }

    let _manager = cluster.controller_manager(&[]);
    apply_daemon_set(&cluster.tools, &cluster.admin).await;

    let mut expected: Vec<String> = CONTROL_PLANES.iter().map(|case| case.name.to_owned()).collect();
    expected.sort();
    assert_eq!(placed(&cluster.admin).await, expected);
}

/// So that it runs in a cluster in which no worker is initialized. No scheduler is started: its rules are those of the
/// DaemonSet controller (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>).
#[tokio::test]
async fn the_webhook_tolerates_what_the_manager_tolerates_and_prefers_the_same_nodes() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let objects = rendered(&tools, "base").await;
    let pod = |kind: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind);
        found.expect("a workload")["spec"]["template"]["spec"].clone()
    };
    let (manager, webhook) = (pod("DaemonSet"), pod("Deployment"));

    // The webhook needs a Pod network, so it does not tolerate a Node without one.
    let mut tolerated = manager["tolerations"].as_array().expect("tolerations").clone();
    tolerated.retain(|toleration| toleration["key"] != "node.kubernetes.io/not-ready");
    assert_eq!(webhook["tolerations"], json!(tolerated));

    let affinity = |pod: &Value, rule: &str| pod["affinity"]["nodeAffinity"][rule].clone();
    let terms = affinity(&manager, "requiredDuringSchedulingIgnoredDuringExecution");
    let preferred = affinity(&webhook, "preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = preferred.as_array().expect("preferences").iter();
    let preferred: Vec<Value> = preferred.map(|rule| rule["preference"].clone()).collect();
    assert_eq!(json!(preferred), terms["nodeSelectorTerms"]);
}
