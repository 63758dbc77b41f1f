//! The node lifecycle controller against an API server and an AWS in memory.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod node_support;

use std::sync::Arc;
use std::time::Duration;

use node_support::{Api, aws, describes, eventually, instance, set_state};
use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceState};
use outrigger_leader::Permit;
use outrigger_manager::controllers::node_lifecycle::{self, Deps, EVENT_COMPONENT};
use outrigger_manager::events::Recorder;
use outrigger_manager::instances::Instances;
use outrigger_manager::metrics::Metrics;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

struct Running {
    api: Api,
    aws: Arc<FakeAws>,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<Result<(), node_lifecycle::Error>>,
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn start(api: Api, aws: Arc<FakeAws>) -> Running {
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let deps = Deps {
        client: api.client(),
        nodes: api.cache.clone(),
        instances: Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        monitor_period: Duration::from_secs(5),
        metrics: metrics.clone(),
        events: Recorder::new(api.client(), EVENT_COMPONENT),
        permit: Permit::always(),
    };
    let task = tokio::spawn(node_lifecycle::run(deps, stop.clone()));
    Running {
        api,
        aws,
        metrics,
        stop,
        task,
    }
}

fn node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"providerID": format!("aws:///us-east-1a/{name}")},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn shutdown_taints(api: &Api, name: &str) -> usize {
    let node = api.node(name).unwrap();
    node["spec"]["taints"].as_array().map_or(0, |taints| {
        taints.iter().filter(|taint| taint["key"] == SHUTDOWN).count()
    })
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_terminated_goes_with_an_event_before() {
    let aws = aws(vec![instance("i-00000001", "x", "10.0.0.1")]);
    set_state(&aws, "i-00000001", InstanceState::Terminated);
    let running = start(Api::with(vec![node("i-00000001", "Unknown")]), aws);
    eventually("the Node is gone", || running.api.node("i-00000001").is_none()).await;
    assert_eq!(running.api.events(), ["Normal DeletingNode i-00000001"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_ec2_does_not_know_goes_after_two_sightings_and_a_confirmation_by_id() {
    let running = start(Api::with(vec![node("i-00000001", "False")]), aws(vec![]));
    pause(8).await;
    assert!(running.api.node("i-00000001").is_some(), "one sighting is none");
    eventually("the Node is gone", || running.api.node("i-00000001").is_none()).await;
    assert_eq!(running.api.writes(), ["DELETE /api/v1/nodes/i-00000001"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_young_node_stays_while_ec2_may_not_know_its_instance_yet() {
    let mut young = node("i-00000001", "False");
    young["metadata"]["creationTimestamp"] = jiff::Timestamp::now().to_string().into();
    let running = start(Api::with(vec![young]), aws(vec![]));
    pause(300).await;
    assert!(running.api.node("i-00000001").is_some());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_never_delete() {
    let aws = aws(vec![]);
    for code in [
        "InvalidInstanceID.NotFound",
        "InternalError",
        "UnauthorizedOperation",
        "InvalidInstanceID.Malformed",
        "RequestLimitExceeded",
    ] {
        for _ in 0..20 {
            aws.fail_next("DescribeInstances", AwsError::answered("DescribeInstances", code, "x"));
        }
    }
    let running = start(Api::with(vec![node("i-00000001", "Unknown")]), aws);
    pause(480).await;
    assert!(running.api.node("i-00000001").is_some());
    assert_eq!(running.api.events(), Vec::<String>::new());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ready_nodes_cost_no_call_and_lose_the_shutdown_taint() {
    let mut ready = node("i-00000001", "True");
    ready["spec"]["taints"] =
        json!([{"key": SHUTDOWN, "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"}]);
    let running = start(Api::with(vec![ready]), aws(vec![]));
    eventually("the taint is off", || shutdown_taints(&running.api, "i-00000001") == 0).await;
    assert_eq!(
        running.api.node("i-00000001").unwrap()["spec"]["taints"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    pause(60).await;
    assert_eq!(describes(&running.aws), 0);
    assert_eq!(running.api.writes().len(), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_instance_gives_its_node_one_shutdown_taint() {
    let aws = aws(vec![
        instance("i-00000001", "x", "10.0.0.1"),
        instance("i-00000002", "y", "10.0.0.2"),
    ]);
    set_state(&aws, "i-00000001", InstanceState::Stopped);
    set_state(&aws, "i-00000002", InstanceState::Stopping);
    let running = start(
        Api::with(vec![node("i-00000001", "Unknown"), node("i-00000002", "Unknown")]),
        aws,
    );
    eventually("the taint", || shutdown_taints(&running.api, "i-00000001") == 1).await;
    pause(60).await;
    assert_eq!(shutdown_taints(&running.api, "i-00000001"), 1);
    assert_eq!(shutdown_taints(&running.api, "i-00000002"), 0);
    assert_eq!(running.api.writes().len(), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_announced_once_and_tried_again() {
    let aws = aws(vec![instance("i-00000001", "x", "10.0.0.1")]);
    set_state(&aws, "i-00000001", InstanceState::Terminated);
    let api = Api::with(vec![node("i-00000001", "Unknown")]);
    api.fail_next("DELETE", 500);
    api.fail_next("DELETE", 500);
    let running = start(api, aws);
    eventually("the Node is gone", || running.api.node("i-00000001").is_none()).await;
    let events = running.api.events();
    assert_eq!(
        events,
        [
            "Normal DeletingNode i-00000001",
            "Warning DeletingNodeFailed i-00000001",
            "Warning DeletingNodeFailed i-00000001"
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_node_of_the_same_name_survives() {
    let aws = aws(vec![instance("i-00000001", "x", "10.0.0.1")]);
    set_state(&aws, "i-00000001", InstanceState::Terminated);
    let api = Api::with(vec![node("i-00000001", "Unknown")]);
    api.change_behind("i-00000001", |node| node["metadata"]["uid"] = "another".into());
    let running = start(api, aws);
    pause(30).await;
    assert!(running.api.node("i-00000001").is_some());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_gone_at_once_are_all_kept_and_an_alarm_is_raised_once() {
    let nodes: Vec<Value> = (0..20)
        .map(|n| node(&format!("i-{n:08x}"), if n < 10 { "Unknown" } else { "True" }))
        .collect();
    let running = start(Api::with(nodes), aws(vec![]));
    pause(600).await;
    assert!((0..20).all(|n| running.api.node(&format!("i-{n:08x}")).is_some()));
    assert_eq!(running.api.events(), ["Warning TooManyNodesGone default"]);
    assert!(
        running
            .metrics
            .encode()
            .unwrap()
            .contains("outrigger_node_deletion_breaker_open 1")
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_really_shrank_is_cleaned_up_slowly() {
    let nodes: Vec<Value> = (0..20)
        .map(|n| node(&format!("i-{n:08x}"), if n < 10 { "Unknown" } else { "True" }))
        .collect();
    let running = start(Api::with(nodes), aws(vec![]));
    let left = |api: &Api| (0..20).filter(|n| api.node(&format!("i-{n:08x}")).is_some()).count();
    pause(1000).await;
    assert_eq!(left(&running.api), 17);
    eventually("all are gone", || left(&running.api) == 10).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_may_always_go() {
    let nodes: Vec<Value> = (0..4)
        .map(|n| node(&format!("i-{n:08x}"), if n < 3 { "Unknown" } else { "True" }))
        .collect();
    let running = start(Api::with(nodes), aws(vec![]));
    eventually("three are gone", || {
        (0..3).all(|n| running.api.node(&format!("i-{n:08x}")).is_none())
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_pass_asks_once_for_all_nodes_that_are_not_ready() {
    let names: Vec<String> = (0..150).map(|n| format!("i-{n:08x}")).collect();
    let instances = names.iter().map(|name| instance(name, name, "10.0.0.1")).collect();
    let running = start(
        Api::with(names.iter().map(|name| node(name, "Unknown")).collect()),
        aws(instances),
    );
    pause(12).await;
    assert_eq!(describes(&running.aws), 3, "one describe for each of three passes");
    running.end().await;
}
