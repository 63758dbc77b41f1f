//! What somebody changes at AWS by hand, before the Service is looked at again.

use serde_json::{Value, json};

use super::rng::Rng;
use super::service::{Draft, Port};

/// A step with a call by hand that AWS takes, as the Service is as drawn and all went well.
pub(super) fn drawn(rng: &mut Rng, draft: &Draft) -> Option<Value> {
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
