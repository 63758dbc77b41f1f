//! The tagging controller against an API server and an AWS in memory.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod denied;
#[path = "../node_support/mod.rs"]
mod node_support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use node_support::{Api, aws, describes, eventually, instance};
use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceId, Tags};
use outrigger_leader::Permit;
use outrigger_manager::controllers::tagging::{self, Deps, TaggingMetrics, label};
use outrigger_manager::events::Recorder;
use outrigger_manager::instances::Instances;
use outrigger_manager::metrics::Metrics;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

static TAGS: LazyLock<Tags> =
    LazyLock::new(|| Tags::from([("key1".into(), "value1".into()), ("key2".into(), "value2".into())]));
const LABEL: &str = "c812faa65d1d5e5aefa6b069b3da39df";

type Running = node_support::Running<tagging::Error>;

impl Running {
    fn label(&self, name: &str) -> Option<String> {
        let node = self.api.node(name).unwrap();
        node["metadata"]["labels"][label::LABEL].as_str().map(str::to_owned)
    }

    fn is_tagged(&self, name: &str) -> bool {
        self.label(name).as_deref() == Some(LABEL)
            && TAGS.iter().all(|(key, value)| self.tags(name).get(key) == Some(value))
    }

    fn tags(&self, id: &str) -> Tags {
        self.aws.world().instances[&InstanceId::new(id)].tags.clone()
    }

    fn calls(&self, action: &str) -> usize {
        self.aws.calls().iter().filter(|call| call.action == action).count()
    }

    fn has(&self, metric: &str) -> bool {
        self.metrics.encode().unwrap().contains(metric)
    }
}

#[derive(Clone, Copy)]
struct Flags {
    batching: bool,
    calls_at_once: usize,
    rate_limit: f64,
    burst_limit: u32,
    resync_period: Option<Duration>,
}

const SINGLE: Flags = Flags {
    batching: false,
    calls_at_once: 1,
    rate_limit: 0.0,
    burst_limit: 0,
    resync_period: Some(Duration::from_secs(1800)),
};
const BATCHED: Flags = Flags {
    batching: true,
    ..SINGLE
};

fn start(nodes: Vec<Value>, aws: Arc<FakeAws>, flags: Flags) -> Running {
    let api = Api::with(nodes);
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let deps = Deps {
        client: api.client(),
        events: Recorder::new(api.client(), tagging::EVENT_COMPONENT),
        nodes: api.cache.clone(),
        instances: Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        ec2: aws.clone(),
        tags: TAGS.clone(),
        label: label::value(&TAGS),
        batching: flags.batching,
        calls_at_once: flags.calls_at_once,
        rate_limit: flags.rate_limit,
        burst_limit: flags.burst_limit,
        resync_period: flags.resync_period,
        metrics: metrics.clone(),
        counts: TaggingMetrics::registered(&metrics),
        permit: Permit::always(),
    };
    let task = tokio::spawn(tagging::run(deps, stop.clone()));
    Running {
        api,
        aws,
        metrics,
        stop,
        task,
    }
}

/// A Node whose name is its instance's ID, made now.
fn node(id: &str) -> Value {
    json!({
        "metadata": {
            "name": id, "uid": format!("uid-{id}"), "creationTimestamp": jiff::Timestamp::now().to_string(),
            "labels": {"kubernetes.io/hostname": id},
        },
        "spec": {"providerID": format!("aws:///us-east-1a/{id}")},
    })
}

fn old(id: &str) -> Value {
    let mut node = node(id);
    node["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    node
}

fn labelled(id: &str, value: &str) -> Value {
    let mut node = node(id);
    node["metadata"]["labels"][label::LABEL] = value.into();
    node
}

fn world(ids: &[&str]) -> Arc<FakeAws> {
    aws(ids.iter().map(|id| instance(id, id, "10.0.0.1")).collect())
}

fn refusal(action: &'static str, code: &str) -> AwsError {
    AwsError::answered(action, code, "injected")
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_is_tagged_then_labelled() {
    for flags in [SINGLE, BATCHED] {
        let running = start(vec![node("i-1")], world(&["i-1"]), flags);
        eventually("tagged", || running.is_tagged("i-1")).await;
        assert_eq!(running.calls("CreateTags"), 1);
        assert_eq!(
            running
                .tags("i-1")
                .get("kubernetes.io/cluster/prod")
                .map(String::as_str),
            Some("owned")
        );
        pause(1).await;
        assert!(running.has("tagging_controller_inital_node_tagging_delay_seconds_count 1"));
        assert!(running.has("tagging_controller_initial_node_tagging_delay_seconds_count 1"));
        pause(1000).await;
        assert_eq!(running.calls("CreateTags"), 1);
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_again_and_counted() {
    for flags in [SINGLE, BATCHED] {
        let aws = world(&["i-1"]);
        aws.fail_next("CreateTags", refusal("CreateTags", "InternalError"));
        aws.fail_next("CreateTags", refusal("CreateTags", "RequestLimitExceeded"));
        let running = start(vec![node("i-1")], aws, flags);
        eventually("tagged", || running.is_tagged("i-1")).await;
        assert_eq!(running.calls("CreateTags"), 3);
        let errors = "cloudprovider_aws_tagging_controller_work_item_errors_total{error_type=\"total_errors\",instance_id=\"\"} 2";
        assert!(running.has(errors), "{}", running.metrics.encode().unwrap());
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_counts_nodes() {
    let ids: Vec<String> = (1..=7).map(|n| format!("i-{n}")).collect();
    for flags in [SINGLE, BATCHED] {
        let limited = Flags {
            rate_limit: 0.5,
            burst_limit: 2,
            ..flags
        };
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let running = start(ids.iter().map(|id| node(id)).collect(), world(&ids), limited);
        eventually("all tagged", || ids.iter().all(|id| running.is_tagged(id))).await;
        let took = begun.elapsed().as_secs_f64();
        assert!(
            (9.5..11.5).contains(&took),
            "2 at once, then 5 at 0.5 per second: {took}"
        );
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_tags_are_set_again_and_the_same_are_not() {
    for flags in [SINGLE, BATCHED] {
        let nodes = vec![labelled("i-1", "another"), labelled("i-2", LABEL)];
        let running = start(nodes, world(&["i-1", "i-2"]), flags);
        eventually("tagged", || running.is_tagged("i-1")).await;
        pause(60).await;
        assert_eq!(running.aws.writes(), ["CreateTags i-1"]);
        assert!(running.has("tagging_controller_inital_node_tagging_delay_seconds_count 0"));
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_without_an_instance_are_left_alone_until_they_have_one() {
    for flags in [SINGLE, BATCHED] {
        let with = |name: &str, provider_id: &str| {
            let mut node = node(name);
            node["spec"]["providerID"] = provider_id.into();
            node
        };
        let nodes = vec![
            with("fargate", "aws:///us-east-1a/fargate-ip-10-0-0-1.ec2.internal"),
            with("elsewhere", "kind://docker/kind/node"),
            with("i-1", ""),
        ];
        let running = start(nodes, world(&["i-1"]), flags);
        pause(60).await;
        assert_eq!(running.aws.calls(), []);
        running.api.put(node("i-1"));
        eventually("tagged", || running.is_tagged("i-1")).await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_takes_its_tags_along_where_they_have_its_values() {
    for (flags, fails) in [(SINGLE, false), (BATCHED, false), (SINGLE, true), (BATCHED, true)] {
        let aws = world(&["i-1"]);
        if fails {
            aws.fail_next("DeleteTags", refusal("DeleteTags", "InternalError"));
        }
        let running = start(vec![node("i-1")], aws, flags);
        eventually("tagged", || running.is_tagged("i-1")).await;
        running.aws.change(|world| {
            let instance = world.instances.get_mut(&InstanceId::new("i-1")).unwrap();
            instance.tags.insert("key2".into(), "changed".into());
        });
        running.api.remove("i-1");
        eventually("untagged", || !running.tags("i-1").contains_key("key1")).await;
        assert_eq!(running.tags("i-1").get("key2").map(String::as_str), Some("changed"));
        assert_eq!(running.calls("DeleteTags"), 1 + usize::from(fails));
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_node_whose_instance_is_not_known_yet_is_tagged_when_it_is() {
    for flags in [SINGLE, BATCHED] {
        let running = start(vec![node("i-1")], world(&[]), flags);
        pause(60).await;
        assert_eq!((running.calls("CreateTags"), running.label("i-1")), (0, None));
        running.aws.change(|world| {
            world
                .instances
                .insert(InstanceId::new("i-1"), instance("i-1", "x", "10.0.0.1"));
        });
        eventually("tagged", || running.is_tagged("i-1")).await;
        assert_eq!(running.calls("CreateTags"), 1);
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_not_found_is_no_success() {
    for flags in [SINGLE, BATCHED] {
        let aws = world(&["i-1"]);
        aws.fail_next("CreateTags", refusal("CreateTags", "InvalidInstanceID.NotFound"));
        let running = start(vec![node("i-1")], aws, flags);
        pause(5).await;
        assert_eq!(running.label("i-1"), None);
        eventually("tagged", || running.is_tagged("i-1")).await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ec2_does_not_know_is_neither_labelled_nor_tried_again() {
    for flags in [SINGLE, BATCHED] {
        for bad in [old("i-9"), node("i-kwok")] {
            let name = bad["metadata"]["name"].as_str().unwrap().to_owned();
            let running = start(vec![bad], world(&[]), flags);
            pause(1000).await;
            assert_eq!((running.calls("CreateTags"), running.label(&name)), (0, None), "{name}");
            running.api.remove(&name);
            pause(60).await;
            assert_eq!(running.calls("DeleteTags"), 0, "{name} was never tagged");
            running.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_an_instance_that_is_gone_is_a_success() {
    for flags in [SINGLE, BATCHED] {
        let running = start(
            vec![labelled("i-1", LABEL), labelled("i-2", LABEL)],
            world(&["i-2"]),
            flags,
        );
        pause(1).await;
        running.api.remove("i-1");
        pause(600).await;
        assert_eq!((running.calls("DeleteTags"), describes(&running.aws)), (0, 1));
        running.end().await;
    }
}

/// Old Nodes of which these lose their instances after EC2 described them and before they are tagged.
async fn start_and_terminate(ids: &[String], gone: &[&str]) -> Running {
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    let aws = world(&all);
    aws.fail_next("CreateTags", refusal("CreateTags", "RequestLimitExceeded"));
    let running = start(ids.iter().map(|id| old(id)).collect(), aws, BATCHED);
    eventually("throttled", || running.calls("CreateTags") == 1).await;
    running.aws.change(|world| {
        for id in gone {
            world.instances.remove(&InstanceId::new(*id));
        }
    });
    running.aws.forget_calls();
    running
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_cluster_gets_and_loses_no_tags() {
    for flags in [SINGLE, BATCHED] {
        let aws = world(&["i-1", "i-2", "i-3"]);
        let elsewhere = |world: &mut outrigger_aws::fake::World, id: &str| {
            let tags = [("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())];
            world.instances.get_mut(&InstanceId::new(id)).unwrap().tags = tags.into();
        };
        aws.change(|world| ["i-1", "i-2"].iter().for_each(|id| elsewhere(world, id)));
        aws.change(|world| {
            let stranger = world.instances.get_mut(&InstanceId::new("i-2")).unwrap();
            stranger.tags.extend(TAGS.clone());
        });
        let before = (0..2).map(|n| aws.world().instances[&InstanceId::new(format!("i-{}", n + 1))].clone());
        let before: Vec<_> = before.collect();
        let running = start(vec![node("i-1"), labelled("i-2", LABEL), node("i-3")], aws, flags);
        eventually("tagged", || running.is_tagged("i-3")).await;
        pause(1000).await;
        assert_eq!(running.label("i-1"), None);
        ["i-1", "i-2"].iter().for_each(|name| running.api.remove(name));
        pause(4000).await;
        assert_eq!(running.aws.writes(), ["CreateTags i-3"]);
        for instance in before {
            assert_eq!(running.tags(instance.id.as_str()), instance.tags);
        }
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_is_tagged_once_it_has_the_clusters_tag() {
    for flags in [SINGLE, BATCHED] {
        let aws = world(&["i-1"]);
        let set = |tags: Tags| {
            aws.change(|world| world.instances.get_mut(&InstanceId::new("i-1")).unwrap().tags = tags);
        };
        set(Tags::new());
        let running = start(vec![node("i-1")], Arc::clone(&aws), flags);
        pause(60).await;
        assert_eq!(running.calls("CreateTags"), 0);
        set([("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())].into());
        eventually("tagged", || running.is_tagged("i-1")).await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_fifty_and_one_bad_id_costs_it_one_call_more() {
    let ids: Vec<String> = (0..120).map(|n| format!("i-{n:04x}")).collect();
    let known: Vec<&str> = ids.iter().map(String::as_str).filter(|id| *id != "i-0007").collect();
    let running = start_and_terminate(&ids, &["i-0007"]).await;
    eventually("tagged", || known.iter().all(|id| running.is_tagged(id))).await;
    pause(600).await;
    assert_eq!(running.calls("CreateTags"), 4);
    assert_eq!(running.label("i-0007"), None);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_refusal_names_nobody_is_sorted_by_one_describe() {
    let ids: Vec<String> = (0..50).map(|n| format!("i-{n:04x}")).collect();
    let (gone, known): (Vec<&str>, Vec<&str>) = ids.iter().map(String::as_str).partition(|id| *id <= "i-0007");
    let running = start_and_terminate(&ids, &gone).await;
    running
        .aws
        .fail_next("CreateTags", refusal("CreateTags", "InvalidInstanceID.NotFound"));
    eventually("tagged", || known.iter().all(|id| running.is_tagged(id))).await;
    assert_eq!((running.calls("CreateTags"), describes(&running.aws)), (2, 1));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn tags_that_were_lost_come_back() {
    for flags in [SINGLE, BATCHED] {
        let running = start(vec![labelled("i-1", LABEL), node("i-2")], world(&["i-1", "i-2"]), flags);
        eventually("tagged", || running.is_tagged("i-2")).await;
        pause(600).await;
        assert!(!running.is_tagged("i-1"), "the label is believed at first");
        pause(1190).await;
        eventually("tagged again", || running.is_tagged("i-1")).await;
        pause(3600).await;
        assert_eq!(running.calls("CreateTags"), 2);
        assert!(
            describes(&running.aws) <= 4,
            "one in half an hour: {}",
            describes(&running.aws)
        );
        running.end().await;
    }
}

/// The instance is described before it is tagged, to check its cluster. That description does not show lost tags.
#[tokio::test(start_paused = true)]
async fn an_instance_that_was_tagged_a_moment_ago_has_lost_nothing() {
    for flags in [SINGLE, BATCHED] {
        let running = start(vec![labelled("i-1", LABEL)], world(&["i-1", "i-2"]), flags);
        // The next search for lost tags is 100 s later.
        pause(1700).await;
        running.api.put(node("i-2"));
        eventually("tagged", || running.is_tagged("i-2")).await;
        pause(600).await;
        assert!(running.is_tagged("i-1"), "the search was made");
        assert_eq!(running.calls("CreateTags"), 2, "one for each");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn how_soon_lost_tags_come_back_is_the_operators_choice() {
    for (resync_period, describes_in_an_hour) in [(Some(Duration::from_secs(60)), 55..=61), (None, 0..=1)] {
        let flags = Flags {
            resync_period,
            ..BATCHED
        };
        let running = start(vec![labelled("i-1", LABEL)], world(&["i-1"]), flags);
        pause(3600).await;
        assert_eq!(running.is_tagged("i-1"), resync_period.is_some());
        let asked = describes(&running.aws);
        assert!(describes_in_an_hour.contains(&asked), "{resync_period:?}: {asked}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_that_is_not_written_is_tried_again() {
    let api_fails = start(vec![node("i-1")], world(&["i-1"]), SINGLE);
    api_fails.api.fail_next("PATCH /api/v1/nodes/i-1", 500);
    eventually("tagged", || api_fails.is_tagged("i-1")).await;
    api_fails.end().await;
}

/// Counts lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl std::io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0
            .fetch_add(text.iter().filter(|byte| **byte == b'\n').count(), Ordering::Relaxed);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn lines() -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_with_bad_ids_are_quiet_after_a_minute() {
    for flags in [SINGLE, BATCHED] {
        for form in ["i-kwok", "i-00"] {
            let (lines, _guard) = lines();
            let nodes = (0..1000).map(|n| node(&format!("{form}{n}"))).collect();
            let running = start(nodes, world(&[]), flags);
            pause(60).await;
            running.aws.forget_calls();
            let said = lines.0.swap(0, Ordering::Relaxed);
            pause(600).await;
            let (calls, more) = (running.aws.calls().len(), lines.0.load(Ordering::Relaxed));
            println!("{form}: {said} lines at first; in 600 s {calls} calls, {more} lines");
            assert!(
                calls < 600 && more < 600,
                "{form}: {calls} calls and {more} lines in 600 s"
            );
            running.end().await;
        }
    }
}
