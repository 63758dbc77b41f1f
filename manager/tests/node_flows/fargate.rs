//! Nodes on Fargate, which have no instance.

use outrigger_aws::ec2::FargateEni;
use serde_json::{Value, json};

use crate::node_support::running::{initialized, pause, start};
use crate::node_support::{Api, aws, new_node};

const NAME: &str = "fargate-ip-192-168-1-1.us-east-1.compute.internal";
const ID: &str = "aws:///us-east-1a/abc-def/fargate-ip-192-168-1-1.us-east-1.compute.internal";

#[tokio::test(start_paused = true)]
async fn a_fargate_node_gets_zone_region_and_addresses_and_no_type() {
    let mut node = new_node(NAME);
    node["spec"]["providerID"] = ID.into();
    let aws = aws(vec![]);
    aws.change(|world| {
        world.fargate.push(FargateEni {
            id: Some("eni-1".into()),
            vpc_id: Some("vpc-1".into()),
            availability_zone: Some("us-east-1a".into()),
            private_ip: Some("192.168.1.1".into()),
            private_dns_name: Some("ip-192-168-1-1.us-east-1.compute.internal".into()),
            ipv6: vec![],
        });
    });
    let running = start(Api::with(vec![node]), aws);
    let node = initialized(&running, NAME).await;
    assert_eq!(node["spec"]["providerID"], ID);
    let labels = &node["metadata"]["labels"];
    for (key, value) in [
        ("failure-domain.beta.kubernetes.io/zone", json!("us-east-1a")),
        ("topology.kubernetes.io/zone", json!("us-east-1a")),
        ("failure-domain.beta.kubernetes.io/region", json!("us-east-1")),
        ("topology.kubernetes.io/region", json!("us-east-1")),
        ("topology.k8s.aws/zone-id", json!("use1-az1")),
        ("beta.kubernetes.io/instance-type", Value::Null),
        ("node.kubernetes.io/instance-type", Value::Null),
    ] {
        assert_eq!(labels[key], value, "{key}");
    }
    assert_eq!(
        running.api.addresses(NAME),
        [
            "InternalIP 192.168.1.1".to_owned(),
            "InternalDNS ip-192-168-1-1.us-east-1.compute.internal".to_owned(),
            format!("Hostname {NAME}"),
        ]
    );
    running.external.send_replace(true);
    pause(1000).await;
    assert_eq!(running.api.writes().len(), 2, "nothing more is written");
    running.end().await;
}
