//! The steps of a case: changes of the Service, of Nodes, and manual changes of AWS.

use serde_json::{Value, json};

use super::annotations::{PREFIX, TYPE};
use super::environment::{History, step_of_nodes};
use super::rng::Rng;
use super::service::{Draft, Port, RANGES, TCP, UDP};

pub(super) fn drawn(rng: &mut Rng, draft: &mut Draft, plain: bool, so_far: &mut History) -> Vec<Value> {
    let mut steps = vec![json!({"do": "create"})];
    for _ in 0..=rng.below(4) {
        let step = match rng.below(100) {
            0..66 => update(rng, draft),
            66..74 => Some(json!({"do": "no-op"})),
            74..90 => Some(step_of_nodes(rng, so_far)),
            _ if plain && draft.good && draft.wanted && !so_far.ever_stopped => drift(rng, draft),
            _ => update(rng, draft),
        };
        steps.extend(step);
    }

    steps.push(json!({"do": "delete"}));
    steps
}

/// A change of the Service; none if the drawn values change nothing.
fn update(rng: &mut Rng, draft: &mut Draft) -> Option<Value> {
    let before = draft.clone();
    for _ in 0..rng.pick(&[1, 1, 1, 2, 3]) {
        change(rng, draft);
        draft.without_doubles();
    }

    let patch = draft.patch(&before);
    let changed = patch.as_object().is_some_and(|patch| !patch.is_empty());
    changed.then(|| json!({"do": "update", "patch": patch}))
}

fn change(rng: &mut Rng, draft: &mut Draft) {
    if !draft.wanted {
        draft.wanted = rng.chance(80);
        return;
    }
    match rng.below(100) {
        0..35 => ports(rng, draft),
        35..60 => draft.annotate(rng),
        60..70 => {
            let kind = format!("{PREFIX}{TYPE}");
            let keys: Vec<&String> = draft.annotations.keys().filter(|key| **key != kind).collect();
            if let Some(key) = rng.some(&keys, 1).first().map(|key| (*key).clone()) {
                draft.annotations.remove(&key);
            }
        }
        70..80 => draft.ranged(rng),
        80..84 => draft.ranges.clear(),
        84..91 => draft.local = !draft.local,
        91 if draft.odd => draft.sticky = !draft.sticky,
        92 if draft.odd => draft.addressed = !draft.addressed,
        93..95 if draft.odd => {
            draft.network = !draft.network;
            draft.good = false;
            draft.kind(rng);
        }
        95..100 => {
            draft.wanted = false;
            draft.annotations.remove(RANGES); // the API server refuses it with another type
        }
        _ => ports(rng, draft),
    }
}

fn ports(rng: &mut Rng, draft: &mut Draft) {
    let count = draft.ports.len();
    let (one, other) = (rng.below(count), rng.below(count));
    match rng.below(8) {
        0 | 1 => draft.port(rng),
        2 | 3 if count > 1 => drop(draft.ports.remove(one)),
        4 => {
            let free = draft.free_node_port(rng);
            draft.ports[one].node_port = free;
        }
        // v1.37 then does not change the target groups of listeners of a network load balancer.
        5 if !draft.network => {
            let (a, b) = (draft.ports[one].node_port, draft.ports[other].node_port);
            draft.ports[one].node_port = b;
            draft.ports[other].node_port = a;
        }
        6 if draft.network => {
            draft.good = false; // v1.37 fails
            let other = if draft.ports[one].protocol == UDP { TCP } else { UDP };
            let all = !draft.odd || rng.chance(60);
            let changed = draft.ports.iter_mut().enumerate();
            for (_, port) in changed.filter(|(index, _)| all || *index == one) {
                port.protocol = other;
            }
        }
        7 => draft.ports.swap(one, other),
        _ => {
            let node_port = draft.ports[one].node_port;
            let removed = draft.ports.remove(one);
            draft.port(rng);
            match draft.ports.last_mut() {
                Some(last) => {
                    last.node_port = node_port;
                    last.protocol = removed.protocol;
                }
                None => draft.ports.push(removed),
            }
        }
    }
}

/// A step with a manual call that AWS accepts after a success of the Service as drawn.
fn drift(rng: &mut Rng, draft: &Draft) -> Option<Value> {
    let port = draft.ports.get(rng.below(draft.ports.len()))?;
    let call = if draft.network {
        network(rng, port)
    } else {
        classic(rng, port)
    };
    Some(json!({"do": "no-op", "calls": [call]}))
}

fn classic(rng: &mut Rng, port: &Port) -> Value {
    let (action, mut parameters) = match rng.below(4) {
        0 => (
            "DeleteLoadBalancerListeners",
            json!({"LoadBalancerPorts.member.1": port.port.to_string()}),
        ),
        1 => (
            "DeregisterInstancesFromLoadBalancer",
            json!({"Instances.member.1.InstanceId": "<node-2>"}),
        ),
        2 => (
            "ConfigureHealthCheck",
            json!({
                "HealthCheck.Target": "TCP:1", "HealthCheck.Interval": "30", "HealthCheck.Timeout": "5",
                "HealthCheck.UnhealthyThreshold": "2", "HealthCheck.HealthyThreshold": "10",
            }),
        ),
        _ => ("DeleteLoadBalancer", json!({})),
    };

    parameters["LoadBalancerName"] = json!("<lb>");
    json!({"service": "elb", "action": action, "parameters": parameters})
}

fn network(rng: &mut Rng, port: &Port) -> Value {
    let balancer = "<nlb <lb>>";
    let (action, parameters) = match rng.below(3) {
        0 => (
            "DeleteListener",
            json!({"ListenerArn": format!("<listener {}>", port.port)}),
        ),
        1 => (
            "ModifyLoadBalancerAttributes",
            json!({
                "LoadBalancerArn": balancer, "Attributes.member.1.Key": "load_balancing.cross_zone.enabled",
                "Attributes.member.1.Value": "true",
            }),
        ),
        _ => ("DeleteLoadBalancer", json!({"LoadBalancerArn": balancer})),
    };

    json!({"service": "elbv2", "action": action, "parameters": parameters})
}
