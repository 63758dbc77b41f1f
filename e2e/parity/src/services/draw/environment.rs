//! The surroundings of the Service of a case: the AWS resources, the cloud config, and the Nodes with their changes.

use serde_json::{Map, Value, json};

use super::rng::Rng;

const CLUSTER: &str = "kubernetes.io/cluster/parity";
pub(super) const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub(super) const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// Nodes without an instance, by their provider ID.
const WITHOUT_INSTANCE: [&str; 3] = ["bare-1", "fargate-1", "foreign-1"];

/// Keys of the cloud config. There are few sets, because cases of one set share a manager.
pub(super) fn config(rng: &mut Rng) -> Value {
    match rng.below(100) {
        0..58 => json!({}),
        58..74 => json!({"NLBSecurityGroupMode": "Managed"}),
        74..81 => json!({"DisableSecurityGroupIngress": "true"}),
        81..88 => json!({"ElbSecurityGroup": "<sg:shared>"}),
        88..93 => json!({"ClusterServiceLoadBalancerHealthProbeMode": "Shared"}),
        93..96 => json!({
            "ClusterServiceLoadBalancerHealthProbeMode": "Shared",
            "ClusterServiceSharedLoadBalancerHealthProbePort": "8081",
            "ClusterServiceSharedLoadBalancerHealthProbePath": "/probe",
        }),
        96 | 97 => json!({"KubernetesClusterTag": "parity"}),
        98 => json!({"ElbSecurityGroup": "<sg:shared>", "NLBSecurityGroupMode": "Managed"}),
        _ => json!({"DisableSecurityGroupIngress": "true", "NLBSecurityGroupMode": "Managed"}),
    }
}

/// Subnets, groups, addresses and tags. `text` is the rest of the case, which may name some of them.
pub(super) fn aws(rng: &mut Rng, text: &str) -> Value {
    let mut aws = Map::new();
    if rng.chance(25) {
        let names = [("c1", "us-east-1c"), ("c2", "us-east-1c"), ("d", "us-east-1d")];
        let count = rng.below(3) + 1;
        let subnet =
            |(name, zone)| json!({"name": name, "zone": zone, "tags": subnet_tags(rng), "private": rng.chance(30)});
        let subnets = names.into_iter().take(count).map(subnet).collect::<Vec<_>>();
        aws.insert("subnets".into(), json!(subnets));
    }

    if text.contains("<sg:extra>") {
        let tags = match rng.below(10) {
            0 => json!({CLUSTER: "shared"}),
            1 => json!({CLUSTER: "owned"}),
            2 => json!({"kubernetes.io/cluster/other": "owned"}),
            _ => json!({}),
        };
        aws.insert("groups".into(), json!([{"name": "extra", "tags": tags}]));
    }

    if text.contains("<eip-") {
        aws.insert("addresses".into(), json!(["eip-1", "eip-2"]));
    }

    if rng.chance(8) {
        let subnet = rng.pick(&["subnet-a", "subnet-b"]);
        aws.insert("tags".into(), json!({subnet: subnet_tags(rng)}));
    } else if rng.chance(3) {
        // The only group of each Node, which managers use without a tag too.
        aws.insert("tags".into(), json!({"sg:parity-nodes": {CLUSTER: null}}));
    }

    Value::Object(aws)
}

fn subnet_tags(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => json!({"kubernetes.io/role/elb": "1"}),
        1 => json!({"kubernetes.io/role/internal-elb": ""}),
        2 => json!({CLUSTER: "owned"}),
        3 => json!({CLUSTER: "shared", "kubernetes.io/role/elb": "1"}),
        4 => json!({"kubernetes.io/cluster/other": "shared"}),
        5 => json!({"kubernetes.io/cluster/other": "shared", CLUSTER: "shared"}),
        _ => json!({}),
    }
}

/// The changes of Nodes so far.
#[derive(Debug, Default)]
pub(super) struct History {
    extra: bool,
    other: Option<&'static str>,
    unready: bool,
    tainted: bool,
    stopped: bool,
    /// v1.37 may have failed because of a stopped target, so that the state is not known.
    pub(super) ever_stopped: bool,
}

/// Nodes before the creation of the Service. `text` is the rest of the case, which may require labels.
pub(super) fn nodes_before(rng: &mut Rng, text: &str, so_far: &mut History) -> Value {
    let mut patch = Map::new();
    if text.contains("role") {
        patch.insert("node-1".into(), labelled(&json!({"role": "edge"})));
        patch.insert("node-2".into(), labelled(&json!({"role": "edge", "tier": "x"})));
    }

    if rng.chance(10) {
        patch.insert("node-3".into(), excluded(rng));
    }

    if rng.chance(4) {
        patch.insert("node-4".into(), tainted(true));
    }

    if rng.chance(6) {
        so_far.unready = true;
        patch.insert("node-5".into(), ready(rng.pick(&["False", "Unknown"])));
    }

    let mut nodes = json!({"patch": patch});
    if rng.chance(4) {
        let other = rng.pick(&WITHOUT_INSTANCE);
        so_far.other = Some(other);
        nodes["add"] = json!([other]);
    }

    nodes
}

/// A step that adds, removes or changes one Node, or stops or starts an instance.
pub(super) fn step_of_nodes(rng: &mut Rng, so_far: &mut History) -> Value {
    let change = match rng.below(16) {
        0 | 1 if !so_far.extra => {
            so_far.extra = true;
            json!({"add": ["node-7"]})
        }
        0..3 if so_far.extra => {
            so_far.extra = false;
            json!({"remove": ["node-7"]})
        }
        2 | 3 => without_instance(rng, so_far),
        4 | 5 => {
            so_far.unready = !so_far.unready;
            let status = if so_far.unready { "False" } else { "True" };
            json!({"patch": {"node-5": ready(status)}})
        }
        6 => {
            so_far.tainted = !so_far.tainted;
            json!({"patch": {"node-4": tainted(so_far.tainted)}})
        }
        7 | 8 => return stopped(so_far),
        9 | 10 => json!({"patch": {"node-6": excluded(rng)}}),
        11 => json!({"patch": {"node-3": labelled(&json!({EXCLUDE: null}))}}),
        12 => json!({"patch": {"node-1": labelled(&json!({"role": null}))}}),
        13 => json!({"patch": {"node-2": labelled(&json!({"tier": null, "role": "core"}))}}),
        _ => json!({"patch": {"node-5": labelled(&json!({"role": "edge", "tier": "x"}))}}),
    };
    json!({"do": "nodes", "nodes": change})
}

/// Adds or removes a Node without an instance, or gives it one.
fn without_instance(rng: &mut Rng, so_far: &mut History) -> Value {
    let Some(other) = so_far.other else {
        let other = rng.pick(&WITHOUT_INSTANCE);
        so_far.other = Some(other);
        return json!({"add": [other]});
    };
    if other == "bare-1" && !so_far.extra && rng.chance(50) {
        so_far.extra = true; // it uses the instance of node-7
        return json!({"patch": {other: {"spec": {"providerID": "aws:///us-east-1a/<node-7>"}}}});
    }
    if so_far.extra {
        return json!({"patch": {"node-6": excluded(rng)}});
    }

    so_far.other = None;

    json!({"remove": [other]})
}

fn stopped(so_far: &mut History) -> Value {
    so_far.stopped = !so_far.stopped;
    so_far.ever_stopped = true;

    let action = if so_far.stopped {
        "StopInstances"
    } else {
        "StartInstances"
    };
    let call = json!({"service": "ec2", "action": action, "parameters": {"InstanceId.1": "<node-3>"}});
    json!({"do": "no-op", "calls": [call]})
}

/// A Node with the label that may exclude it from load balancers.
fn excluded(rng: &mut Rng) -> Value {
    labelled(&json!({EXCLUDE: rng.pick(&["true", "false", "", "yes", "0"])}))
}

fn labelled(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn tainted(on: bool) -> Value {
    let taints = json!([{"key": AUTOSCALER, "effect": "NoSchedule", "value": "1"}]);
    json!({"spec": {"taints": if on { taints } else { Value::Null }}})
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Harness"}]}})
}
