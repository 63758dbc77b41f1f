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
use outrigger_aws::ec2::FargateEni;
use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceState};
use outrigger_leader::Permit;
use outrigger_manager::args::{self, DeletionBreaker, Request};
use outrigger_manager::controllers::node_lifecycle::{self, Deps, EVENT_COMPONENT};
use outrigger_manager::events::Recorder;
use outrigger_manager::instances::Instances;
use outrigger_manager::metrics::Metrics;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

type Running = node_support::Running<node_lifecycle::Error>;

fn start(api: Api, aws: Arc<FakeAws>) -> Running {
    start_with(api, aws, &[])
}

fn start_with(api: Api, aws: Arc<FakeAws>, flags: &[&str]) -> Running {
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let deps = Deps {
        client: api.client(),
        nodes: api.cache.clone(),
        instances: Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        monitor_period: Duration::from_secs(5),
        breaker: breaker(flags),
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

fn breaker(flags: &[&str]) -> DeletionBreaker {
    let line: Vec<String> = ["--cloud-provider=aws"]
        .iter()
        .chain(flags)
        .map(|flag| (*flag).to_owned())
        .collect();
    match args::parse(&line) {
        Ok(Request::Run(options)) => options.nodes.deletion_breaker,
        other => panic!("{other:?}"),
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

/// They become due one after another, each group within the limit.
#[tokio::test(start_paused = true)]
async fn young_nodes_without_an_instance_count_for_the_alarm() {
    let mut nodes: Vec<Value> = (0..20)
        .map(|n| node(&id(n), if n < 10 { "Unknown" } else { "True" }))
        .collect();
    for young in &mut nodes[2..10] {
        young["metadata"]["creationTimestamp"] = jiff::Timestamp::now().to_string().into();
    }
    let running = start(Api::with(nodes), aws(vec![]));
    pause(600).await;
    assert_eq!(left(&running.api, 0..20), 20);
    assert_eq!(running.api.events(), ["Warning TooManyNodesGone default"]);
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

/// A cluster of `all` Nodes; the first `gone` are not Ready.
fn cluster(all: usize, gone: usize) -> Api {
    let nodes = (0..all).map(|n| node(&id(n), if n < gone { "Unknown" } else { "True" }));
    Api::with(nodes.collect())
}

fn id(n: usize) -> String {
    format!("i-{n:08x}")
}

/// AWS with a terminated instance for each of these Nodes.
fn terminated(nodes: std::ops::Range<usize>) -> Arc<FakeAws> {
    let ids: Vec<String> = nodes.map(id).collect();
    let aws = aws(ids.iter().map(|id| instance(id, id, "10.0.0.1")).collect());
    ids.iter().for_each(|id| set_state(&aws, id, InstanceState::Terminated));
    aws
}

fn left(api: &Api, nodes: std::ops::Range<usize>) -> usize {
    nodes.filter(|n| api.node(&id(*n)).is_some()).count()
}

fn breaker_is_open(running: &Running) -> bool {
    let metrics = running.metrics.encode().unwrap();
    metrics.contains("outrigger_node_deletion_breaker_open 1")
}

#[tokio::test(start_paused = true)]
async fn four_hundred_of_a_thousand_terminated_at_once_are_deleted_within_two_minutes() {
    let running = start(cluster(1000, 400), terminated(0..400));
    pause(120).await;
    assert_eq!(left(&running.api, 0..400), 0, "Nodes whose instance is terminated");
    assert_eq!(left(&running.api, 400..1000), 600, "Nodes that are Ready");
    assert!(!breaker_is_open(&running));
    assert!(running.api.events().iter().all(|event| event.contains("DeletingNode")));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn four_hundred_of_a_thousand_absent_at_once_are_kept_and_an_alarm_is_raised() {
    let running = start(cluster(1000, 400), aws(vec![]));
    pause(600).await;
    assert_eq!(left(&running.api, 0..1000), 1000);
    assert_eq!(running.api.events(), ["Warning TooManyNodesGone default"]);
    assert!(breaker_is_open(&running));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_flags_of_the_breaker_set_its_limits() {
    let flags = ["--node-deletion-breaker-percent=100"];
    let running = start_with(cluster(1000, 400), aws(vec![]), &flags);
    eventually("all absent ones are deleted", || left(&running.api, 0..400) == 0).await;
    assert!(!breaker_is_open(&running));
    running.end().await;

    let flags = ["--node-deletion-breaker-minimum=1", "--node-deletion-breaker-percent=1"];
    let running = start_with(cluster(100, 2), aws(vec![]), &flags);
    pause(600).await;
    assert_eq!(left(&running.api, 0..2), 2, "two are more than one percent");
    assert!(breaker_is_open(&running));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_defers_no_node_whose_instance_is_terminated() {
    let running = start(cluster(100, 60), terminated(0..30));
    pause(120).await;
    assert_eq!(left(&running.api, 0..30), 0, "terminated");
    assert_eq!(left(&running.api, 30..60), 30, "absent");
    assert!(breaker_is_open(&running));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_of_terminated_instances_do_not_open_the_breaker_for_absent_ones() {
    let running = start(cluster(100, 33), terminated(0..30));
    eventually("all are deleted", || left(&running.api, 0..33) == 0).await;
    assert!(
        !running
            .api
            .events()
            .iter()
            .any(|event| event.contains("TooManyNodesGone"))
    );
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

#[tokio::test(start_paused = true)]
async fn seventeen_hundred_nodes_cost_nine_calls_and_two_once_they_are_known() {
    let names: Vec<String> = (0..1700).map(|n| format!("i-{n:08x}")).collect();
    let instances = names.iter().map(|name| instance(name, name, "10.0.0.1")).collect();
    let running = start(
        Api::with(names.iter().map(|name| node(name, "Unknown")).collect()),
        aws(instances),
    );
    pause(2).await;
    assert_eq!(describes(&running.aws), 9);
    running.aws.forget_calls();
    pause(5).await;
    assert_eq!(describes(&running.aws), 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn seventeen_hundred_absent_nodes_cost_ten_calls_a_pass_and_all_stay() {
    let names: Vec<String> = (0..1700).map(|n| format!("i-{n:08x}")).collect();
    let running = start(
        Api::with(names.iter().map(|name| node(name, "Unknown")).collect()),
        aws(vec![]),
    );
    pause(12).await;
    running.aws.forget_calls();
    pause(5).await;
    assert!(describes(&running.aws) <= 10, "{}", describes(&running.aws));
    assert_eq!(running.api.writes(), Vec::<String>::new());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_looked_terminated_once_keeps_its_node() {
    let aws = aws(vec![instance("i-00000001", "x", "10.0.0.1")]);
    set_state(&aws, "i-00000001", InstanceState::Terminated);
    let running = start(Api::with(vec![node("i-00000001", "Unknown")]), aws);
    // Long enough for one pass each; what it was before it ran again does not count.
    for seconds in [2, 5] {
        pause(seconds).await;
        set_state(&running.aws, "i-00000001", InstanceState::Running);
        pause(60).await;
        assert!(running.api.node("i-00000001").is_some());
        set_state(&running.aws, "i-00000001", InstanceState::Terminated);
    }
    running.end().await;
}

/// A Fargate Node, and whether its network interface is there.
fn on_fargate(there: bool) -> (Value, Arc<FakeAws>) {
    let mut node = node("fargate-ip-10-0-0-9.ec2.internal", "Unknown");
    node["spec"]["providerID"] = "aws:///us-east-1a/1abc-2def/fargate-ip-10-0-0-9.ec2.internal".into();
    let aws = aws(vec![]);
    if there {
        let eni = FargateEni {
            vpc_id: Some("vpc-1".into()),
            private_ip: Some("10.0.0.9".into()),
            ..FargateEni::default()
        };
        aws.change(|world| world.fargate.push(eni));
    }
    (node, aws)
}

#[tokio::test(start_paused = true)]
async fn a_fargate_node_stays_untouched_while_its_interface_is_there_and_goes_a_minute_after() {
    let (node, aws) = on_fargate(true);
    let name = node["metadata"]["name"].as_str().unwrap().to_owned();
    let running = start(Api::with(vec![node]), aws);
    pause(120).await;
    assert_eq!(running.api.writes(), Vec::<String>::new());
    running.aws.change(|world| world.fargate.clear());
    pause(50).await;
    assert!(running.api.node(&name).is_some(), "seen for less than a minute");
    eventually("the Node is gone", || running.api.node(&name).is_none()).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_fargate_node_stays_when_aws_does_not_answer() {
    let (node, aws) = on_fargate(false);
    let name = node["metadata"]["name"].as_str().unwrap().to_owned();
    for _ in 0..1000 {
        let action = "DescribeNetworkInterfaces";
        aws.fail_next(
            action,
            AwsError::answered(action, "InvalidNetworkInterfaceID.NotFound", "x"),
        );
    }
    let running = start(Api::with(vec![node]), aws);
    pause(600).await;
    assert!(running.api.node(&name).is_some());
    running.end().await;
}

fn code() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(vec![
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidID",
        "RequestLimitExceeded",
        "UnauthorizedOperation",
        "AuthFailure",
        "InternalError",
        "Unavailable",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidVpcID.NotFound",
        "NotFound",
        "",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => "[A-Za-z]{1,20}(\\.NotFound|\\.Malformed)?"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever code the question is answered with, and whomever its message names: only an answer that lists the
    /// instance as terminated, or lists it not and then says by its ID that it does not exist, deletes a Node.
    #[test]
    fn no_code_of_an_error_deletes_a_node(code in code(), names_it: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let aws = aws(vec![]);
            let message = if names_it { "The instance ID 'i-00000001' does not exist" } else { "x" };
            for _ in 0..200 {
                aws.fail_next("DescribeInstances", AwsError::answered("DescribeInstances", &code, message));
            }
            let running = start(Api::with(vec![node("i-00000001", "Unknown")]), aws);
            pause(600).await;
            assert!(running.api.node("i-00000001").is_some(), "{code}");
            running.end().await;
        });
    }

    /// The same for the question that confirms absence: any code but the one that says that the ID does not exist.
    #[test]
    fn no_other_code_confirms_an_absence(code in code(), names_it: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let aws = aws(vec![]);
            let message = if names_it { "The instance ID 'i-00000001' does not exist" } else { "x" };
            // Each list of nothing is followed by a question that fails; the first two passes do not ask it.
            aws.plan_next("DescribeInstances", None);
            aws.plan_next("DescribeInstances", None);
            for _ in 0..200 {
                aws.plan_next("DescribeInstances", None);
                aws.fail_next("DescribeInstances", AwsError::answered("DescribeInstances", &code, message));
            }
            let running = start(Api::with(vec![node("i-00000001", "Unknown")]), aws);
            pause(600).await;
            let deleted = running.api.node("i-00000001").is_none();
            assert_eq!(deleted, code == "InvalidInstanceID.NotFound", "{code}");
            running.end().await;
        });
    }
}
