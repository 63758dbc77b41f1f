//! The node IPAM controller against an API server in memory.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod node_support;

use std::collections::BTreeSet;
use std::time::Duration;

use node_support::{Api, eventually};
use outrigger_leader::Permit;
use outrigger_manager::controllers::node_ipam::{self, ClusterRange, Deps, EVENT_COMPONENT, IpamMetrics};
use outrigger_manager::events::Recorder;
use outrigger_manager::metrics::Metrics;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Running {
    api: Api,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<Result<(), node_ipam::Error>>,
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    fn has(&self, metric: &str) -> bool {
        self.metrics.encode().unwrap().contains(metric)
    }
}

fn start(api: &Api, clusters: &[(&str, u8)]) -> Running {
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let range = |(cluster, node_prefix): &(&str, u8)| ClusterRange {
        cluster: cluster.parse().unwrap(),
        node_prefix: *node_prefix,
    };
    let deps = Deps {
        client: api.client(),
        nodes: api.cache.clone(),
        ranges: clusters.iter().map(range).collect(),
        excluded: Vec::new(),
        metrics: IpamMetrics::registered(&metrics),
        events: Recorder::new(api.client(), EVENT_COMPONENT),
        permit: Permit::always(),
    };
    Running {
        api: api.clone(),
        metrics,
        task: tokio::spawn(node_ipam::run(deps, stop.clone())),
        stop,
    }
}

fn node(name: &str, ranges: &[&str]) -> Value {
    let mut node = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {}, "status": {}});
    if let Some(first) = ranges.first() {
        node["spec"] = json!({"podCIDR": first, "podCIDRs": ranges});
    }
    node
}

fn ranges(api: &Api, name: &str) -> Vec<String> {
    let node = api.node(name).unwrap();
    let ranges = node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| range.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn new_nodes_get_ranges_that_nobody_has() {
    let nodes = vec![node("old", &["10.0.1.0/24", "fd00:0:0:1::/64"]), node("a", &[])];
    let running = start(&Api::with(nodes), &[("10.0.0.0/16", 24), ("fd00::/56", 64)]);
    eventually("a has ranges", || ranges(&running.api, "a").len() == 2).await;
    assert_eq!(ranges(&running.api, "a"), ["10.0.0.0/24", "fd00::/64"]);
    assert_eq!(running.api.node("a").unwrap()["spec"]["podCIDR"], "10.0.0.0/24");
    running.api.put(node("b", &[]));
    eventually("b has ranges", || ranges(&running.api, "b").len() == 2).await;
    assert_eq!(ranges(&running.api, "b"), ["10.0.2.0/24", "fd00:0:0:2::/64"]);
    eventually("the metrics follow", || {
        running.has("node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR=\"10.0.0.0/16\"} 3")
    })
    .await;
    assert!(running.has("node_ipam_controller_cirdset_max_cidrs{clusterCIDR=\"fd00::/56\"} 256"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_last_holder_wrote_counts_though_the_cache_does_not_know_it_yet() {
    let api = Api::with(vec![node("a", &[]), node("b", &[])]);
    api.change_behind("a", |a| *a = node("a", &["10.0.0.0/24"]));
    let running = start(&api, &[("10.0.0.0/16", 24)]);
    eventually("b has a range", || !ranges(&running.api, "b").is_empty()).await;
    assert_eq!(ranges(&running.api, "b"), ["10.0.1.0/24"]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ranges(&running.api, "a"), ["10.0.0.0/24"]);
    assert_eq!(
        running.api.writes().iter().filter(|w| w.starts_with("PATCH")).count(),
        1
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_before_the_list_is_through() {
    let api = Api::with(vec![node("a", &[])]);
    for _ in 0..3 {
        api.fail_next("GET /api/v1/nodes", 500);
    }
    let running = start(&api, &[("10.0.0.0/16", 24)]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(ranges(&running.api, "a").is_empty());
    eventually("a has a range", || !ranges(&running.api, "a").is_empty()).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_free_the_range() {
    let api = Api::with(vec![node("a", &[])]);
    api.lose_answer("PATCH /api/v1/nodes/a");
    let running = start(&api, &[("10.0.0.0/31", 32)]);
    eventually("a has a range", || !ranges(&running.api, "a").is_empty()).await;
    running.api.put(node("b", &[]));
    eventually("b has a range", || !ranges(&running.api, "b").is_empty()).await;
    assert_eq!(
        (ranges(&running.api, "a"), ranges(&running.api, "b")),
        (vec!["10.0.0.0/32".into()], vec!["10.0.0.1/32".into()])
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_at_the_third_and_tried_on() {
    let api = Api::with(vec![node("a", &[])]);
    for _ in 0..5 {
        api.fail_next("PATCH /api/v1/nodes/a", 500);
    }
    let running = start(&api, &[("10.0.0.0/16", 24)]);
    eventually("a has a range", || !ranges(&running.api, "a").is_empty()).await;
    assert_eq!(ranges(&running.api, "a"), ["10.0.0.0/24"], "the same at every try");
    eventually("the Event", || {
        running.api.events() == ["Normal CIDRAssignmentFailed a"]
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_finds_none_left_gets_the_first_that_is_released() {
    let nodes = vec![node("a", &["10.0.0.0/32"]), node("b", &["10.0.0.1/32"]), node("c", &[])];
    let running = start(&Api::with(nodes), &[("10.0.0.0/31", 32)]);
    eventually("the Event", || running.api.events() == ["Normal CIDRNotAvailable c"]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(running.api.events().len(), 1, "reported once");
    running.api.remove("a");
    eventually("c has a's", || ranges(&running.api, "c") == ["10.0.0.0/32"]).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_with_wrong_ranges_are_told_and_left_alone() {
    let nodes = vec![
        node("far", &["192.168.0.0/24"]),
        node("a", &["10.0.0.0/24"]),
        node("twin", &["10.0.0.0/24"]),
    ];
    let running = start(&Api::with(nodes), &[("10.0.0.0/16", 24)]);
    eventually("both Events", || running.api.events().len() == 2).await;
    let events: BTreeSet<String> = running.api.events().into_iter().collect();
    assert!(events.contains("Warning CIDROutOfRange far"));
    assert!(events.iter().any(|event| event.starts_with("Warning CIDROverlap")));
    eventually("the metrics", || {
        running.has("outrigger_node_ipam_problem_nodes{reason=\"CIDROutOfRange\"} 1")
            && running.has("outrigger_node_ipam_problem_nodes{reason=\"CIDROverlap\"} 1")
    })
    .await;
    running.api.put(node("b", &[]));
    eventually("others are served", || ranges(&running.api, "b") == ["10.0.1.0/24"]).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_on_its_way_out_gets_none() {
    let mut going = node("a", &[]);
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let running = start(&Api::with(vec![going]), &[("10.0.0.0/16", 24)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(ranges(&running.api, "a").is_empty());
    running.end().await;
}
