//! The route controller against an API server and an AWS in memory.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod node_support;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use node_support::{Api, aws, describes, eventually, instance, set_state};
use outrigger_aws::ec2::{Route, RouteTable, RouteTarget};
use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceId, InstanceState};
use outrigger_leader::{Grantor, Permit};
use outrigger_manager::controllers::route::{self, Deps, EVENT_COMPONENT};
use outrigger_manager::events::Recorder;
use outrigger_manager::instances::Instances;
use outrigger_manager::metrics::Metrics;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Running {
    api: Api,
    aws: Arc<FakeAws>,
    metrics: Metrics,
    grantor: Grantor,
    stop: CancellationToken,
    task: JoinHandle<Result<(), route::Error>>,
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// The instance routes of a table as `cidr instance`, in order.
    fn routes(&self, table: &str) -> Vec<String> {
        routes(&self.aws, table)
    }

    /// The condition `NetworkUnavailable` of a Node as `status reason`.
    fn condition(&self, node: &str) -> String {
        let node = self.api.node(node).unwrap();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut found = conditions
            .iter()
            .filter(|condition| condition["type"] == "NetworkUnavailable");
        let text = |condition: &Value| format!("{} {}", condition["status"], condition["reason"]).replace('"', "");
        found.next().map(text).unwrap_or_default()
    }

    fn syncs(&self, outcome: &str, trigger: &str) -> u64 {
        let series = format!("route_controller_route_sync_total{{outcome=\"{outcome}\",trigger=\"{trigger}\"}} ");
        let text = self.metrics.encode().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

fn routes(aws: &FakeAws, table: &str) -> Vec<String> {
    let world = aws.world();
    let tables = world.route_tables.values().flatten();
    let table = tables.into_iter().find(|candidate| candidate.id == table).unwrap();
    let mut routes: Vec<String> = table
        .routes
        .iter()
        .filter_map(|route| match &route.target {
            RouteTarget::Instance(id) => Some(format!("{} {id}", route.destination.as_deref()?)),
            _ => None,
        })
        .collect();
    routes.sort();
    routes
}

/// A table of the VPC with the cluster's tag.
fn table(id: &str, routes: Vec<Route>) -> RouteTable {
    let local = Route {
        destination: Some("10.1.0.0/16".into()),
        target: RouteTarget::Other("local".into()),
        blackhole: false,
    };
    RouteTable {
        id: id.into(),
        routes: std::iter::once(local).chain(routes).collect(),
        tags: [("kubernetes.io/cluster/prod".to_owned(), "shared".to_owned())].into(),
        ..RouteTable::default()
    }
}

fn to(cidr: &str, id: &str) -> Route {
    Route {
        destination: Some(cidr.into()),
        target: RouteTarget::Instance(InstanceId::new(id)),
        blackhole: false,
    }
}

/// The account: `count` instances and these tables.
fn account(count: u8, tables: Vec<RouteTable>) -> Arc<FakeAws> {
    let instances = (0..count).map(|n| instance(&format!("i-{n}"), &format!("n{n}"), "10.1.0.9"));
    let aws = aws(instances.collect());
    aws.change(|world| _ = world.route_tables.insert("vpc-1".into(), tables));
    aws
}

fn node(n: u8) -> Value {
    json!({
        "metadata": {"name": format!("n{n}"), "uid": format!("uid-{n}"), "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{n}"), "podCIDRs": [format!("10.0.{n}.0/24")]},
    })
}

fn nodes(count: u8) -> Vec<Value> {
    (0..count).map(node).collect()
}

fn start(api: Api, aws: Arc<FakeAws>) -> Running {
    start_with(api, aws, |_| {})
}

fn start_with(api: Api, aws: Arc<FakeAws>, change: impl FnOnce(&mut Deps)) -> Running {
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let (grantor, permit) = Permit::pair();
    grantor.extend(Instant::now() + Duration::from_secs(1_000_000));
    let mut deps = Deps {
        client: api.client(),
        nodes: api.cache.clone(),
        ec2: aws.clone(),
        instances: Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        route_table_id: None,
        cluster: route::plan::ClusterRange {
            cidr: "10.0.0.0/16".parse().unwrap(),
            shortest_prefix: 20,
        },
        period: Duration::from_secs(10),
        metrics: metrics.clone(),
        events: Recorder::new(api.client(), EVENT_COMPONENT),
        permit,
    };
    change(&mut deps);
    let task = tokio::spawn(route::run(deps, stop.clone()));
    Running {
        api,
        aws,
        metrics,
        grantor,
        stop,
        task,
    }
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn count(aws: &FakeAws, action: &str) -> usize {
    aws.calls().iter().filter(|call| call.action == action).count()
}

fn remove(api: &Api, n: u8) {
    let view = serde_json::from_value(node(n)).unwrap();
    api.cache.observe(Event::Delete(view));
}

#[tokio::test(start_paused = true)]
async fn conditions_that_cannot_be_written_are_a_failure_of_the_pass_and_come_with_the_next() {
    let api = Api::with(nodes(3));
    (0..3).for_each(|n| api.fail_next(&format!("PATCH /api/v1/nodes/n{n}/status"), 500));
    let running = start(api, account(3, vec![table("rtb-1", vec![])]));
    eventually("routed", || running.routes("rtb-1").len() == 3).await;
    pause(5).await;
    assert_eq!(
        (running.syncs("error", "periodic"), running.condition("n1")),
        (1, String::new())
    );
    let written = |n: u8| running.condition(&format!("n{n}")) == "False RouteCreated";
    eventually("written", || (0..3).all(written)).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_node_gets_its_route_in_every_tagged_table_and_its_condition() {
    let mut other = table("rtb-other", vec![]);
    other.tags.clear();
    let aws = account(2, vec![table("rtb-1", vec![]), table("rtb-2", vec![]), other]);
    let running = start(Api::with(nodes(2)), aws);
    pause(1).await;
    let wanted = ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"];
    assert_eq!(running.routes("rtb-1"), wanted);
    assert_eq!(running.routes("rtb-2"), wanted);
    assert!(
        running.routes("rtb-other").is_empty(),
        "a table without the tag is not ours"
    );
    assert_eq!(running.condition("n0"), "False RouteCreated");
    assert_eq!(running.syncs("changed", "periodic"), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_steady_state_costs_one_read_in_ten_seconds_and_no_write() {
    let running = start(Api::with(nodes(3)), account(3, vec![table("rtb-1", vec![])]));
    pause(1).await;
    running.aws.forget_calls();
    let before = running.api.writes().len();
    pause(100).await;
    assert_eq!(count(&running.aws, "DescribeRouteTables"), 10);
    assert_eq!(running.aws.calls().len(), 10, "{:?}", running.aws.calls());
    assert_eq!(running.api.writes().len(), before);
    assert_eq!(running.syncs("noop", "periodic"), 10);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_source_dest_check_goes_off_before_the_route_and_only_where_it_is_on() {
    let aws = account(2, vec![table("rtb-1", vec![]), table("rtb-2", vec![])]);
    aws.change(|world| {
        let checked = |world: &mut outrigger_aws::fake::World, id: &str, on| {
            world.instances.get_mut(&InstanceId::new(id)).unwrap().source_dest_check = Some(on);
        };
        checked(world, "i-0", true);
        checked(world, "i-1", false);
    });
    let running = start(Api::with(nodes(2)), aws);
    pause(1).await;
    let writes = running.aws.writes();
    let of_first: Vec<&str> = writes
        .iter()
        .filter(|write| write.ends_with("i-0"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        of_first,
        [
            "ModifyInstanceAttribute i-0",
            "CreateRoute rtb-1 10.0.0.0/24 i-0",
            "CreateRoute rtb-2 10.0.0.0/24 i-0"
        ]
    );
    assert!(!writes.contains(&"ModifyInstanceAttribute i-1".to_owned()));
    assert_eq!(describes(&running.aws), 1, "one question for all Nodes");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_node_gets_its_route_at_once_and_a_heartbeat_starts_nothing() {
    let running = start(Api::with(nodes(1)), account(2, vec![table("rtb-1", vec![])]));
    pause(11).await;
    running.api.put(node(1));
    pause(1).await;
    assert_eq!(running.routes("rtb-1").len(), 2);
    assert_eq!(running.syncs("changed", "node_change"), 1);
    let mut beat = running.api.node("n1").unwrap();
    beat["status"]["addresses"] = json!([{"type": "InternalIP", "address": "10.1.0.9"}]);
    running.aws.forget_calls();
    running.api.put(beat);
    pause(2).await;
    assert!(running.aws.calls().is_empty(), "{:?}", running.aws.calls());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_deleted_by_hand_comes_back_and_one_led_elsewhere_is_led_back() {
    let running = start(Api::with(nodes(2)), account(2, vec![table("rtb-1", vec![])]));
    pause(1).await;
    running.aws.change(|world| {
        let table = &mut world.route_tables.get_mut("vpc-1").unwrap()[0];
        table
            .routes
            .retain(|route| route.destination.as_deref() != Some("10.0.0.0/24"));
        let other = table
            .routes
            .iter_mut()
            .find(|route| route.destination.as_deref() == Some("10.0.1.0/24"));
        other.unwrap().target = RouteTarget::Instance(InstanceId::new("i-0"));
    });
    running.aws.forget_calls();
    pause(10).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"]);
    let writes = running.aws.writes();
    assert!(
        writes.contains(&"ReplaceRoute rtb-1 10.0.1.0/24 i-1".to_owned()),
        "{writes:?}"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_nodes_route_goes_after_a_second_sighting() {
    let running = start(Api::with(nodes(3)), account(3, vec![table("rtb-1", vec![])]));
    pause(1).await;
    remove(&running.api, 0);
    pause(4).await;
    assert_eq!(running.routes("rtb-1").len(), 3, "one sighting is none");
    pause(3).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.1.0/24 i-1", "10.0.2.0/24 i-2"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_back_in_time_keeps_its_route() {
    let running = start(Api::with(nodes(3)), account(3, vec![table("rtb-1", vec![])]));
    pause(1).await;
    remove(&running.api, 0);
    pause(3).await;
    running.api.put(node(0));
    pause(10).await;
    assert_eq!(running.routes("rtb-1").len(), 3);
    assert!(
        !running
            .aws
            .writes()
            .iter()
            .any(|write| write.starts_with("DeleteRoute"))
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn many_nodes_gone_at_once_keep_their_routes_for_a_minute() {
    let running = start(Api::with(nodes(10)), account(10, vec![table("rtb-1", vec![])]));
    pause(1).await;
    (0..10).for_each(|n| remove(&running.api, n));
    pause(40).await;
    assert_eq!(running.routes("rtb-1").len(), 10);
    assert!(
        running
            .metrics
            .encode()
            .unwrap()
            .contains("outrigger_route_deletions_held 10")
    );
    pause(40).await;
    assert!(running.routes("rtb-1").is_empty());
    assert!(
        running
            .metrics
            .encode()
            .unwrap()
            .contains("outrigger_route_deletions_held 0")
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_routes_to_tagged_instances_are_ours_and_to_others_are_not() {
    let aws = account(
        3,
        vec![table("rtb-1", vec![to("10.0.7.0/24", "i-1"), to("10.0.8.0/24", "i-2")])],
    );
    aws.change(|world| world.instances.get_mut(&InstanceId::new("i-2")).unwrap().tags.clear());
    let running = start(Api::with(nodes(1)), aws);
    pause(30).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.8.0/24 i-2"]);
    assert!(describes(&running.aws) <= 2, "the stranger is asked about once");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_blackhole_is_replaced_where_its_range_is_wanted_and_taken_away_where_not() {
    let dead = |cidr: &str| Route {
        destination: Some(cidr.into()),
        target: RouteTarget::NetworkInterface("eni-1".into()),
        blackhole: true,
    };
    let aws = account(1, vec![table("rtb-1", vec![dead("10.0.0.0/24"), dead("10.0.9.0/24")])]);
    let running = start(Api::with(nodes(1)), aws);
    pause(1).await;
    assert_eq!(
        running.aws.writes().last().unwrap(),
        "ReplaceRoute rtb-1 10.0.0.0/24 i-0"
    );
    pause(10).await;
    let tables = running.aws.world().route_tables;
    assert!(!tables["vpc-1"][0].routes.iter().any(|route| route.blackhole));
    assert_eq!(running.condition("n0"), "False RouteCreated");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_configured_table_is_served_whatever_its_tags_and_a_wrong_name_changes_nothing() {
    let mut plain = table("rtb-plain", vec![]);
    plain.tags.clear();
    let aws = account(1, vec![table("rtb-1", vec![]), plain]);
    let by_id = |id: &'static str| move |deps: &mut Deps| deps.route_table_id = Some(id.to_owned());
    let running = start_with(Api::with(nodes(1)), aws, by_id("rtb-plain"));
    pause(1).await;
    assert_eq!(running.routes("rtb-plain").len(), 1);
    assert!(running.routes("rtb-1").is_empty());
    let aws = Arc::clone(&running.aws);
    running.end().await;
    let wrong = start_with(Api::with(nodes(1)), aws, by_id("rtb-none"));
    pause(25).await;
    assert_eq!(
        (wrong.syncs("error", "periodic"), wrong.condition("n0")),
        (3, String::new())
    );
    wrong.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_table_is_told_by_event_and_condition_and_is_not_tried_for_each_node() {
    let aws = account(100, vec![table("rtb-1", vec![])]);
    aws.change(|world| world.most_routes = Some(51));
    let running = start(Api::with(nodes(100)), aws);
    pause(1).await;
    assert_eq!(running.routes("rtb-1").len(), 50);
    let without = |n: u8| running.condition(&format!("n{n}")) == "True NoRouteCreated";
    assert_eq!((0..100).filter(|n| without(*n)).count(), 50);
    let tried = count(&running.aws, "CreateRoute");
    assert!(tried <= 50 + 16, "{tried} calls");
    eventually("an Event for each Node", || running.api.events().len() == 50).await;
    assert!(
        running
            .api
            .events()
            .iter()
            .all(|event| event.starts_with("Warning FailedToCreateRoute n"))
    );
    pause(60).await;
    assert_eq!(running.api.events().len(), 50, "the same is not told again and again");
    running.aws.change(|world| world.most_routes = Some(1000));
    pause(11).await;
    assert_eq!(running.routes("rtb-1").len(), 100);
    assert!(!(0..100).any(without));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn while_aws_throttles_nothing_is_taken_away_and_no_condition_changes() {
    let running = start(Api::with(nodes(3)), account(3, vec![table("rtb-1", vec![])]));
    pause(1).await;
    running
        .aws
        .change(|world| world.route_tables.get_mut("vpc-1").unwrap()[0].routes.clear());
    let throttle = |action, times| {
        for _ in 0..times {
            running
                .aws
                .fail_next(action, AwsError::answered(action, "RequestLimitExceeded", "slow down"));
        }
    };
    throttle("DescribeRouteTables", 3);
    throttle("CreateRoute", 2);
    let writes = running.api.writes().len();
    pause(58).await;
    assert_eq!(running.api.writes().len(), writes);
    assert!(running.api.events().is_empty());
    pause(10).await;
    assert_eq!(running.routes("rtb-1").len(), 3);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_is_tried_once_for_all_nodes_and_told_with_the_permission() {
    let aws = account(100, vec![table("rtb-1", vec![])]);
    aws.change(|world| {
        for instance in world.instances.values_mut() {
            instance.source_dest_check = Some(false);
        }
    });
    for _ in 0..200 {
        aws.fail_next(
            "CreateRoute",
            AwsError::answered("CreateRoute", "UnauthorizedOperation", "no"),
        );
    }
    let running = start(Api::with(nodes(100)), aws);
    pause(1).await;
    let tried = count(&running.aws, "CreateRoute");
    assert!((1..=16).contains(&tried), "{tried} calls");
    assert_eq!(running.condition("n0"), "True NoRouteCreated");
    running.end().await;
}

/// The next calls of `action` are denied as EC2 denies them.
fn deny(aws: &FakeAws, action: &'static str, calls: usize) {
    for call in 0..calls {
        let message = format!("You are not authorized. Encoded authorization failure message: {call}");
        aws.fail_next(action, AwsError::answered(action, "UnauthorizedOperation", message));
    }
}

fn source_dest_check(aws: &FakeAws, on: impl Fn(&InstanceId) -> bool) {
    aws.change(|world| {
        let instances = world.instances.values_mut();
        instances.for_each(|instance| instance.source_dest_check = Some(on(&instance.id)));
    });
}

fn events(running: &Running, reason: &str) -> Vec<String> {
    let events = running.api.events().into_iter();
    events.filter(|event| event.contains(reason)).collect()
}

/// A blackhole of what was once the interface of an instance.
fn blackhole(cidr: &str) -> Route {
    Route {
        destination: Some(cidr.into()),
        target: RouteTarget::NetworkInterface("eni-1".into()),
        blackhole: true,
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_to_replace_a_route_is_deleted_and_created() {
    let aws = account(2, vec![table("rtb-1", vec![blackhole("10.0.0.0/24")])]);
    source_dest_check(&aws, |_| false);
    deny(&aws, "ReplaceRoute", 50);
    let running = start(Api::with(nodes(2)), aws);
    pause(1).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"]);
    assert_eq!(
        running
            .aws
            .writes()
            .iter()
            .filter(|write| write.contains("10.0.0.0"))
            .collect::<Vec<_>>(),
        [
            "ReplaceRoute rtb-1 10.0.0.0/24 i-0",
            "DeleteRoute rtb-1 10.0.0.0/24",
            "CreateRoute rtb-1 10.0.0.0/24 i-0"
        ]
    );
    assert_eq!(running.condition("n0"), "False RouteCreated");
    assert_eq!(events(&running, ""), ["Warning RouteActionDenied default"]);

    // The denial is remembered for a while.
    let break_route = || {
        running.aws.change(|world| {
            let routes = &mut world.route_tables.get_mut("vpc-1").unwrap()[0].routes;
            routes.retain(|route| route.destination.as_deref() != Some("10.0.1.0/24"));
            routes.push(blackhole("10.0.1.0/24"));
        });
    };
    running.aws.forget_calls();
    break_route();
    pause(11).await;
    assert_eq!(count(&running.aws, "ReplaceRoute"), 0);
    assert_eq!(running.routes("rtb-1").len(), 2);
    pause(1800).await;
    break_route();
    pause(11).await;
    assert_eq!(count(&running.aws, "ReplaceRoute"), 1);
    assert_eq!(running.routes("rtb-1").len(), 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn once_creating_is_denied_no_further_route_is_deleted_to_be_created_again() {
    let blackholes = (0..3).map(|n| blackhole(&format!("10.0.{n}.0/24"))).collect();
    let aws = account(3, vec![table("rtb-1", blackholes)]);
    source_dest_check(&aws, |_| false);
    deny(&aws, "CreateRoute", 500);
    deny(&aws, "ReplaceRoute", 500);
    let running = start(Api::with(nodes(3)), aws);
    pause(1).await;
    assert_eq!(count(&running.aws, "DeleteRoute"), 1, "{:?}", running.aws.writes());
    pause(60).await;
    assert!((0..3).all(|n| running.condition(&format!("n{n}")) == "True NoRouteCreated"));
    assert_eq!(events(&running, "RouteActionDenied").len(), 2, "one for each action");
    assert_eq!(events(&running, "FailedToCreateRoute").len(), 3, "one for each Node");
    running.end().await;
}

/// The second route of the same Node was planned before the denial.
#[tokio::test(start_paused = true)]
async fn a_route_that_cannot_be_created_again_is_not_deleted() {
    let ranges = ["10.0.0.0/24", "10.0.5.0/24"];
    let aws = account(1, vec![table("rtb-1", ranges.map(blackhole).into())]);
    source_dest_check(&aws, |_| false);
    deny(&aws, "CreateRoute", 500);
    deny(&aws, "ReplaceRoute", 500);
    let mut node = node(0);
    node["spec"]["podCIDRs"] = json!(ranges);
    let running = start(Api::with(vec![node]), aws);
    pause(1).await;
    assert_eq!(count(&running.aws, "DeleteRoute"), 1, "{:?}", running.aws.writes());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_for_one_table_stops_neither_other_tables_nor_other_actions() {
    let elsewhere = to("10.0.39.0/24", "i-0");
    let unwanted = to("10.0.200.0/24", "i-0");
    // Nodes come in any order. The one that creates no route in the first table creates none in the second either, so
    // that the first creation is always in the first table.
    let there = to("10.0.39.0/24", "i-39");
    let aws = account(
        40,
        vec![table("rtb-1", vec![elsewhere, unwanted]), table("rtb-2", vec![there])],
    );
    source_dest_check(&aws, |_| false);
    deny(&aws, "CreateRoute", 1);
    let running = start(Api::with(nodes(40)), aws);
    pause(1).await;
    assert_eq!(running.routes("rtb-2").len(), 40, "the other table");
    assert!(
        running.routes("rtb-1").contains(&"10.0.39.0/24 i-39".to_owned()),
        "ReplaceRoute"
    );
    pause(6).await;
    assert_eq!(count(&running.aws, "DeleteRoute"), 1, "DeleteRoute");
    pause(10).await;
    assert_eq!(running.routes("rtb-1").len(), 40, "the next pass tries again");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_deletion_is_called_once_in_a_pass_and_stops_no_creation() {
    let unwanted = (100..103).map(|n| to(&format!("10.0.{n}.0/24"), "i-0"));
    let aws = account(3, vec![table("rtb-1", unwanted.collect())]);
    source_dest_check(&aws, |_| false);
    deny(&aws, "DeleteRoute", 500);
    let running = start(Api::with(nodes(3)), aws);
    pause(9).await;
    assert_eq!(count(&running.aws, "DeleteRoute"), 1, "{:?}", running.aws.writes());
    running
        .aws
        .change(|world| world.route_tables.get_mut("vpc-1").unwrap()[0].routes.clear());
    pause(11).await;
    assert_eq!(running.routes("rtb-1").len(), 3);
    assert_eq!(events(&running, ""), ["Warning RouteActionDenied default"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_change_of_instances_stops_only_nodes_that_need_one() {
    let aws = account(40, vec![table("rtb-1", vec![])]);
    source_dest_check(&aws, |id| id.as_str() == "i-0");
    deny(&aws, "ModifyInstanceAttribute", 500);
    let running = start(Api::with(nodes(40)), aws);
    pause(1).await;
    assert_eq!(running.routes("rtb-1").len(), 39);
    assert_eq!(running.condition("n0"), "True NoRouteCreated");
    running.end().await;
}

fn untag(aws: &FakeAws, id: &str) {
    aws.change(|world| {
        let instance = world.instances.get_mut(&InstanceId::new(id)).unwrap();
        instance.tags = [("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())].into();
    });
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_another_cluster_is_not_changed_whatever_a_provider_id_says() {
    let aws = account(2, vec![table("rtb-1", vec![to("10.0.7.0/24", "i-1")])]);
    untag(&aws, "i-1");
    let running = start(Api::with(nodes(2)), aws);
    pause(60).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.7.0/24 i-1"]);
    let about_it: Vec<String> = running.aws.writes();
    assert!(!about_it.iter().any(|write| write.contains("i-1")), "{about_it:?}");
    assert_eq!(running.condition("n1"), "True NoRouteCreated");
    assert_eq!(events(&running, ""), ["Warning FailedToCreateRoute n1"]);
    assert_eq!(running.condition("n0"), "False RouteCreated");

    // Tagged at last, it gets its route.
    running.aws.change(|world| {
        let instance = world.instances.get_mut(&InstanceId::new("i-1")).unwrap();
        instance.tags = [("KubernetesCluster".to_owned(), "prod".to_owned())].into();
    });
    pause(61).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"]);
    assert_eq!(running.condition("n1"), "False RouteCreated");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_that_the_incumbent_made_to_an_instance_without_the_tag_stays_with_its_condition() {
    let aws = account(2, vec![table("rtb-1", vec![to("10.0.1.0/24", "i-1")])]);
    untag(&aws, "i-1");
    let running = start(Api::with(nodes(2)), aws);
    pause(60).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"]);
    assert_eq!(running.condition("n1"), "False RouteCreated");
    assert_eq!(events(&running, ""), Vec::<String>::new());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn while_ec2_does_not_say_whose_instance_it_is_nothing_is_changed() {
    let aws = account(2, vec![table("rtb-1", vec![to("10.0.7.0/24", "i-1")])]);
    for _ in 0..3 {
        aws.fail_next(
            "DescribeInstances",
            AwsError::answered("DescribeInstances", "RequestLimitExceeded", "slow down"),
        );
    }
    let running = start(Api::with(nodes(2)), aws);
    pause(9).await;
    assert!(running.aws.writes().is_empty() && running.api.writes().is_empty());
    pause(60).await;
    assert_eq!(running.routes("rtb-1"), ["10.0.0.0/24 i-0", "10.0.1.0/24 i-1"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminated_instance_gets_no_route_and_a_stopped_one_keeps_its_own() {
    let stopped = Route {
        blackhole: true,
        ..to("10.0.1.0/24", "i-1")
    };
    let aws = account(2, vec![table("rtb-1", vec![stopped])]);
    set_state(&aws, "i-0", InstanceState::Terminated);
    set_state(&aws, "i-1", InstanceState::Stopped);
    let running = start(Api::with(nodes(2)), aws);
    pause(30).await;
    assert!(running.aws.writes().is_empty(), "{:?}", running.aws.writes());
    assert_eq!(running.condition("n0"), "True NoRouteCreated");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_within_the_write_that_is_under_way_and_begins_no_other() {
    let api = Api::with(nodes(100));
    let aws = account(100, vec![table("rtb-1", vec![])]);
    let stop = CancellationToken::new();
    let asked = stop.clone();
    aws.on_write("CreateRoute", move || asked.cancel());
    let running = start(api, aws);
    let (ours, theirs) = (running.stop.clone(), stop.clone());
    tokio::spawn(async move {
        theirs.cancelled().await;
        ours.cancel();
    });
    stop.cancelled().await;
    tokio::time::timeout(Duration::from_secs(1), running.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let made = routes(&running.aws, "rtb-1").len();
    assert!((1..=16).contains(&made), "{made} routes");
}

#[tokio::test(start_paused = true)]
async fn without_the_permit_nothing_is_written_and_the_controller_ends() {
    let aws = account(3, vec![table("rtb-1", vec![])]);
    let running = start(Api::with(vec![]), aws);
    pause(1).await;
    running.grantor.revoke();
    running.api.put(node(0));
    let ended = running.task.await.unwrap();
    assert!(matches!(ended, Err(route::Error::NotLeader(_))));
    assert!(running.aws.writes().is_empty() && running.api.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_all_nodes_are_known() {
    let mut api = Api::with(vec![]);
    api.cache = outrigger_manager::node_cache::NodeCache::new();
    let aws = account(1, vec![table("rtb-1", vec![to("10.0.5.0/24", "i-0")])]);
    let running = start(api, aws);
    pause(60).await;
    assert!(running.aws.calls().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_read_of_the_route_tables_is_reported_once() {
    let aws = account(3, vec![table("rtb-1", vec![])]);
    deny(&aws, "DescribeRouteTables", 500);
    let running = start(Api::with(nodes(3)), aws);
    pause(60).await;
    assert_eq!(events(&running, ""), ["Warning RouteActionDenied default"]);
    assert!(running.api.messages()[0].contains("allow ec2:DescribeRouteTables to"));
    running.end().await;
}
