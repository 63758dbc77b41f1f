//! Thousands of Nodes that work must not keep a new one waiting.

use std::time::Duration;

use outrigger_leader::Permit;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::node_support::running::{start_in, tainted};
use crate::node_support::{Api, aws, instance, new_node, old_node};

const READY: usize = 5_000;
const NEW: usize = 50;

fn ready(number: usize, beat: usize) -> Value {
    // Its addresses are not true any more, and its older and newer label differ: there is work for it in every flow.
    let mut node = old_node(
        &format!("i-{number:04}"),
        json!([{"type": "InternalIP", "address": "10.9.9.9"}]),
    );
    if beat == 0 {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "other".into();
    }
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]);
    node
}

fn ip(number: usize) -> String {
    format!("10.0.{}.{}", number / 250, number % 250)
}

/// Each of 5,000 Nodes is updated once in 10 s, while all of them are refreshed and repaired by an API server that takes
/// 20 ms for each request; 50 new ones come one after another.
#[tokio::test(start_paused = true)]
async fn fifty_new_nodes_among_five_thousand_busy_ones_are_ready_within_two_seconds() {
    let api = Api::with((0..READY).map(|number| ready(number, 0)).collect());
    api.set_latency(Duration::from_millis(20));
    let instances = (0..READY).map(|number| instance(&format!("i-{number:04}"), &format!("n{number}"), &ip(number)));
    let fresh = (0..NEW).map(|number| instance(&format!("i-new{number:02}"), &format!("new{number}"), &ip(number)));
    let running = start_in(
        api.clone(),
        aws(instances.chain(fresh).collect()),
        Permit::always(),
        |deps| {
            deps.initializations = 1;
        },
    );
    let mut beats = 0;
    let mut came: Vec<(String, Instant)> = Vec::new();
    let mut took: Vec<Duration> = Vec::new();
    // 100 ms at a time: 50 updates, and a new Node in every second step.
    for step in 0..4 * NEW {
        for number in beats..beats + READY / 100 {
            let name = format!("i-{:04}", number % READY);
            // A heartbeat of the Node as it is, as kubelets patch it.
            let mut node = api.node(&name).unwrap();
            node["status"]["conditions"][0]["lastHeartbeatTime"] = number.into();
            api.put(node);
        }
        beats += READY / 100;
        if step % 2 == 0 && step / 2 < NEW {
            let name = format!("i-new{:02}", step / 2);
            api.put(new_node(&name));
            came.push((name, Instant::now()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        came.retain(|(name, since)| {
            let waits = tainted(&api.node(name).unwrap());
            if !waits {
                took.push(since.elapsed());
            }
            waits
        });
    }
    took.sort();
    assert_eq!((took.len(), came.len()), (NEW, 0), "all are initialized");
    // The 99th of a hundred, among fifty: the slowest.
    let slowest = took[NEW - 1];
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    running.end().await;
}

/// One request that is never answered holds up its own Node only.
#[tokio::test(start_paused = true)]
async fn a_node_whose_write_hangs_holds_up_no_other() {
    let api = Api::with(vec![new_node("i-1")]);
    api.set_latency(Duration::from_secs(25));
    let running = start_in(
        api.clone(),
        aws(vec![
            instance("i-1", "one", "10.0.0.1"),
            instance("i-2", "two", "10.0.0.2"),
        ]),
        Permit::always(),
        |_| {},
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.set_latency(Duration::ZERO);
    api.put(new_node("i-2"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!tainted(&api.node("i-2").unwrap()));
    assert!(tainted(&api.node("i-1").unwrap()), "the first write still hangs");
    running.end().await;
    assert!(
        !tainted(&api.node("i-1").unwrap()),
        "what was begun was finished before the end"
    );
}
