//! Labels of the network's layers.

use std::sync::Arc;

use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceId};

use crate::node_support::running::{pause, start, tainted};
use crate::node_support::{Api, aws, eventually, instance, new_node};

const ACTION: &str = "DescribeInstanceTopology";

fn world(kind: &str, count: usize, layers: bool) -> (Api, Arc<FakeAws>) {
    let name = |number: usize| format!("i-{number:04}");
    let api = Api::with((0..count).map(|number| new_node(&name(number))).collect());
    let instances = (0..count).map(|number| {
        let mut one = instance(
            &name(number),
            &name(number),
            &format!("10.0.{}.{}", number / 250, number % 250),
        );
        one.instance_type = Some(kind.into());
        one
    });
    let aws = aws(instances.collect());
    if layers {
        aws.change(|world| {
            for number in 0..count {
                let nodes = ["nn-a", "nn-b", "nn-c"].map(str::to_owned).to_vec();
                world.topology.insert(InstanceId::new(name(number)), nodes);
            }
        });
    }
    (api, aws)
}

fn asked(aws: &FakeAws) -> Vec<usize> {
    let calls = aws.calls().into_iter().filter(|call| call.action == ACTION);
    calls.map(|call| call.about.split(',').count()).collect()
}

fn label(api: &Api, name: &str, layer: u8) -> serde_json::Value {
    api.node(name).unwrap()["metadata"]["labels"][format!("topology.k8s.aws/network-node-layer-{layer}")].clone()
}

#[tokio::test(start_paused = true)]
async fn two_hundred_and_fifty_nodes_are_initialized_first_and_labelled_by_three_calls() {
    let (api, aws) = world("p5.48xlarge", 250, true);
    aws.fail_next(ACTION, AwsError::answered(ACTION, "RequestLimitExceeded", "slow down"));
    let running = start(api.clone(), aws);
    eventually("all are initialized", || {
        (0..250).all(|number| !tainted(&api.node(&format!("i-{number:04}")).unwrap()))
    })
    .await;
    eventually("all are labelled", || {
        (0..250).all(|number| label(&api, &format!("i-{number:04}"), 3) == "nn-c")
    })
    .await;
    assert_eq!(label(&api, "i-0000", 1), "nn-a");
    pause(7200).await;
    let calls = asked(&running.aws);
    assert!(calls.len() <= 5 && calls.iter().all(|ids| *ids <= 100), "{calls:?}");
    assert_eq!(api.writes().len(), 250 * 3, "one write for each Node's labels");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_type_without_topology_costs_one_call_a_day() {
    let (api, aws) = world("m5.large", 300, false);
    let running = start(api.clone(), aws);
    pause(12 * 3600).await;
    assert_eq!(asked(&running.aws), [1]);
    pause(16 * 3600).await;
    assert_eq!(asked(&running.aws), [1, 1]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_region_without_topology_is_not_asked_again_for_a_day_and_nodes_are_initialized() {
    for code in ["UnsupportedOperation", "UnauthorizedOperation"] {
        let (api, aws) = world("p5.48xlarge", 3, true);
        aws.fail_next(ACTION, AwsError::answered(ACTION, code, "no"));
        let running = start(api.clone(), aws);
        pause(12 * 3600).await;
        assert_eq!(asked(&running.aws).len(), 1, "{code}");
        assert!(!tainted(&api.node("i-0000").unwrap()), "{code}");
        pause(16 * 3600).await;
        assert_eq!(label(&api, "i-0000", 1), "nn-a", "{code}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn labels_that_are_there_stay() {
    let (api, aws) = world("p5.48xlarge", 2, true);
    for (name, layer) in [("i-0000", 1), ("i-0001", 2)] {
        let mut node = api.node(name).unwrap();
        node["metadata"]["labels"][format!("topology.k8s.aws/network-node-layer-{layer}")] = "mine".into();
        api.put(node);
    }
    let running = start(api.clone(), aws);
    pause(60).await;
    assert_eq!(
        (label(&api, "i-0000", 1), label(&api, "i-0000", 2)),
        ("mine".into(), serde_json::Value::Null)
    );
    assert_eq!(
        (label(&api, "i-0001", 1), label(&api, "i-0001", 2)),
        ("nn-a".into(), "mine".into())
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_gone_does_not_keep_the_others_from_their_labels() {
    let (api, aws) = world("p5.48xlarge", 5, true);
    let running = start(api.clone(), aws);
    pause(3).await;
    let mut late = new_node("i-0099");
    late["spec"]["providerID"] = "aws:///us-east-1a/i-0099".into();
    late["spec"]["taints"] = serde_json::json!([]);
    late["metadata"]["labels"] = serde_json::json!({
        "node.kubernetes.io/instance-type": "p5.48xlarge", "topology.k8s.aws/zone-id": "x",
    });
    api.put(late);
    pause(60).await;
    assert_eq!(label(&api, "i-0004", 2), "nn-b");
    assert!(asked(&running.aws).len() <= 3, "{:?}", asked(&running.aws));
    running.end().await;
}
