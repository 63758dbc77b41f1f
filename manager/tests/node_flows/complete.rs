//! Nodes that registered without the uninitialized taint.

use serde_json::{Value, json};

use crate::node_support::running::{pause, start};
use crate::node_support::{Api, assert_labelled, aws, eventually, instance, old_node};

fn addresses() -> Value {
    json!([
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalDNS", "address": "one.internal"},
        {"type": "Hostname", "address": "one.internal"},
    ])
}

fn bare(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"addresses": [{"type": "Hostname", "address": name}]}})
}

#[tokio::test(start_paused = true)]
async fn a_node_without_taint_gets_all_that_it_lacks_soon_after_it_came() {
    let running = start(
        Api::with(vec![]),
        aws(vec![instance("i-1", "one.internal", "10.0.0.1")]),
    );
    running.external.send_replace(true);
    pause(60).await;
    running.api.put(bare("one.internal"));
    pause(10).await;
    let node = running.api.node("one.internal").unwrap();
    assert_eq!(node["spec"]["providerID"], "aws:///us-east-1a/i-1");
    assert_labelled(&node);
    assert_eq!(running.api.addresses("one.internal")[0], "InternalIP 10.0.0.1");
    pause(1000).await;
    assert_eq!(running.api.writes().len(), 2, "nothing more is written");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_says_something_else_stays_as_it_is() {
    let mut node = old_node("i-1", addresses());
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "mine".into();
    node["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"] = "mine".into();
    node["metadata"]["labels"]["topology.k8s.aws/zone-id"] = "mine".into();
    node["metadata"]["labels"]["node.kubernetes.io/instance-type"] = Value::Null;
    let labels = node["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|_, value| !value.is_null());
    let running = start(
        Api::with(vec![node]),
        aws(vec![instance("i-1", "one.internal", "10.0.0.1")]),
    );
    let label = |key: &str| running.api.node("i-1").unwrap()["metadata"]["labels"][key].clone();
    eventually("the type", || label("node.kubernetes.io/instance-type") == "m5.large").await;
    running.external.send_replace(true);
    pause(1000).await;
    for key in [
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.k8s.aws/zone-id",
    ] {
        assert_eq!(label(key), "mine", "{key}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn before_the_end_of_a_migration_an_in_tree_kubelets_node_is_not_written_to() {
    let aws = aws(vec![instance("i-1", "one.internal", "10.0.0.1")]);
    aws.change(|world| {
        let id = outrigger_aws::InstanceId::new("i-1");
        world.topology.insert(id, vec!["nn-1".into()]);
    });
    let running = start(Api::with(vec![old_node("i-1", addresses())]), aws);
    pause(1000).await;
    assert_eq!(running.api.writes(), Vec::<String>::new());
    running.external.send_replace(true);
    pause(1000).await;
    let labels = running.api.node("i-1").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["topology.k8s.aws/zone-id"], "use1-az1");
    assert_eq!(labels["topology.k8s.aws/network-node-layer-1"], "nn-1");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn labels_that_someone_takes_away_again_are_left_alone_after_two_writes_until_the_kubelets_are_external() {
    let mut node = old_node("i-1", addresses());
    let labels = node["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove("topology.kubernetes.io/region");
    labels.remove("failure-domain.beta.kubernetes.io/region");
    let running = start(
        Api::with(vec![node.clone()]),
        aws(vec![instance("i-1", "one.internal", "10.0.0.1")]),
    );
    // As a kubelet does: soon after each write, so that no refresh in between finds the Node complete.
    for _ in 0..180 {
        pause(10).await;
        running.api.put(node.clone());
    }
    assert_eq!(running.api.writes().len(), 2);
    eventually("the Event", || running.api.events() == ["Warning LabelsContested i-1"]).await;
    running.external.send_replace(true);
    pause(301).await;
    assert!(running.api.writes().len() > 2, "the limit is off");
    running.end().await;
}
