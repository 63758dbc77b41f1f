//! The AWS resources and the cloud config of a case.

use serde_json::{Map, Value, json};

use super::rng::Rng;

const CLUSTER: &str = "kubernetes.io/cluster/parity";

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
