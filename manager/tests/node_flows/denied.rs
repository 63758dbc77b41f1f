//! Permissions of the node controller that a role lacks: an Event names the action, and other work is done.

use std::sync::Arc;

use outrigger_aws::InstanceId;
use outrigger_aws::fake::FakeAws;
use serde_json::Value;

use crate::node_support::running::{initialized, pause, start, tainted};
use crate::node_support::{Api, aws, eventually, instance, new_node};

const FARGATE: &str = "fargate-ip-192-168-1-1.us-east-1.compute.internal";

/// A Node on an instance with a place in the network, and one on Fargate.
fn cluster() -> (Api, Arc<FakeAws>) {
    let mut fargate = new_node(FARGATE);
    fargate["spec"]["providerID"] = format!("aws:///us-east-1a/abc-def/{FARGATE}").into();
    let mut one = instance("i-1", "one.internal", "10.0.0.1");
    one.instance_type = Some("p5.48xlarge".into());
    let aws = aws(vec![one]);
    aws.change(|world| {
        let layers = vec!["nn-a".to_owned()];
        world.topology.insert(InstanceId::new("i-1"), layers);
    });
    (Api::with(vec![new_node("one.internal"), fargate]), aws)
}

fn label(node: &Value, key: &str) -> Value {
    node["metadata"]["labels"][key].clone()
}

async fn named(api: &Api, node: &str, action: &str) {
    let says = |message: &String| message.contains(&format!(" {node}: ")) && message.contains(action);
    eventually("an Event names the action", || api.messages().iter().any(says)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_initialized_without_the_ids_of_zones() {
    let (api, aws) = cluster();
    aws.deny("ec2:DescribeAvailabilityZones");
    let running = start(api.clone(), aws);
    let node = initialized(&running, "one.internal").await;
    assert_eq!(label(&node, "topology.k8s.aws/zone-id"), Value::Null);
    assert_eq!(label(&node, "topology.kubernetes.io/zone"), "us-east-1a");
    named(&api, "one.internal", "DescribeAvailabilityZones").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_initialized_without_its_place_in_the_network() {
    let (api, aws) = cluster();
    aws.deny("ec2:DescribeInstanceTopology");
    let running = start(api.clone(), aws);
    let node = initialized(&running, "one.internal").await;
    assert_eq!(label(&node, "topology.k8s.aws/zone-id"), "use1-az1");
    named(&api, "one.internal", "DescribeInstanceTopology").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_nodes_on_fargate_need_network_interfaces() {
    let (api, aws) = cluster();
    aws.deny("ec2:DescribeNetworkInterfaces");
    let running = start(api.clone(), aws);
    initialized(&running, "one.internal").await;
    named(&api, FARGATE, "DescribeNetworkInterfaces").await;
    assert!(tainted(&api.node(FARGATE).unwrap()));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_for_its_instance_says_why() {
    let (api, aws) = cluster();
    aws.deny("ec2:DescribeInstances");
    let running = start(api.clone(), aws);
    pause(60).await;
    named(&api, "one.internal", "DescribeInstances").await;
    running.end().await;
}
