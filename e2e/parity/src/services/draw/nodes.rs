//! Nodes: how they are before the Service is made, and what happens to them.

use serde_json::{Map, Value, json};

use super::rng::Rng;

pub(super) const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub(super) const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// Nodes that are no instance of EC2, by what their provider ID is.
const WITHOUT_INSTANCE: [&str; 3] = ["bare-1", "fargate-1", "foreign-1"];

/// What has happened to Nodes so far.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    extra: bool,
    other: Option<&'static str>,
    unready: bool,
    tainted: bool,
    stopped: bool,
    /// v1.37.0 may have failed over a target that was stopped, so that what is there is not known.
    pub(super) ever_stopped: bool,
}

/// Nodes before the Service is made. `text` is all else of the case, which may ask for labels.
pub(super) fn before(rng: &mut Rng, text: &str, crowd: &mut Crowd) -> Value {
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
        crowd.unready = true;
        patch.insert("node-5".into(), ready(rng.pick(&["False", "Unknown"])));
    }

    let mut nodes = json!({"patch": patch});
    if rng.chance(4) {
        let other = rng.pick(&WITHOUT_INSTANCE);
        crowd.other = Some(other);
        nodes["add"] = json!([other]);
    }

    nodes
}

/// A step in which one Node comes, goes, or changes, or an instance stops or starts.
pub(super) fn step(rng: &mut Rng, crowd: &mut Crowd) -> Value {
    let change = match rng.below(16) {
        0 | 1 if !crowd.extra => {
            crowd.extra = true;
            json!({"add": ["node-7"]})
        }
        0..3 if crowd.extra => {
            crowd.extra = false;
            json!({"remove": ["node-7"]})
        }
        2 | 3 => without_instance(rng, crowd),
        4 | 5 => {
            crowd.unready = !crowd.unready;
            let status = if crowd.unready { "False" } else { "True" };
            json!({"patch": {"node-5": ready(status)}})
        }
        6 => {
            crowd.tainted = !crowd.tainted;
            json!({"patch": {"node-4": tainted(crowd.tainted)}})
        }
        7 | 8 => return stopped(crowd),
        9 | 10 => json!({"patch": {"node-6": excluded(rng)}}),
        11 => json!({"patch": {"node-3": labelled(&json!({EXCLUDE: null}))}}),
        12 => json!({"patch": {"node-1": labelled(&json!({"role": null}))}}),
        13 => json!({"patch": {"node-2": labelled(&json!({"tier": null, "role": "core"}))}}),
        _ => json!({"patch": {"node-5": labelled(&json!({"role": "edge", "tier": "x"}))}}),
    };
    json!({"do": "nodes", "nodes": change})
}

/// A Node that is no instance comes, goes, or turns out to be one.
fn without_instance(rng: &mut Rng, crowd: &mut Crowd) -> Value {
    let Some(other) = crowd.other else {
        let other = rng.pick(&WITHOUT_INSTANCE);
        crowd.other = Some(other);
        return json!({"add": [other]});
    };
    if other == "bare-1" && !crowd.extra && rng.chance(50) {
        crowd.extra = true; // its instance is taken
        return json!({"patch": {other: {"spec": {"providerID": "aws:///us-east-1a/<node-7>"}}}});
    }
    if crowd.extra {
        return json!({"patch": {"node-6": excluded(rng)}});
    }

    crowd.other = None;

    json!({"remove": [other]})
}

fn stopped(crowd: &mut Crowd) -> Value {
    crowd.stopped = !crowd.stopped;
    crowd.ever_stopped = true;

    let action = if crowd.stopped {
        "StopInstances"
    } else {
        "StartInstances"
    };
    let call = json!({"service": "ec2", "action": action, "parameters": {"InstanceId.1": "<node-3>"}});
    json!({"do": "no-op", "calls": [call]})
}

/// A Node with the label that may keep it out.
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
