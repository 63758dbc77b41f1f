//! The node controller against an API server and an AWS in memory. Time runs by itself while everyone waits.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod node_support;

use node_support::running::{TAINT, initialized, pause, start, start_with, tainted};
use node_support::{Api, assert_labelled, aws, describes, eventually, instance, new_node, old_node};
use outrigger_aws::{Error as AwsError, InstanceId};
use outrigger_leader::Permit;
use outrigger_manager::controllers::node;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_new_node_gets_addresses_then_provider_id_labels_and_loses_its_taint() {
    let api = Api::with(vec![new_node("one.internal")]);
    let running = start(api, aws(vec![instance("i-1", "one.internal", "10.0.0.1")]));
    let node = initialized(&running, "one.internal").await;
    assert_eq!(node["spec"]["providerID"], "aws:///us-east-1a/i-1");
    assert_labelled(&node);
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "one.internal");
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 1, "other taints stay");
    assert_eq!(
        running.api.addresses("one.internal"),
        [
            "InternalIP 10.0.0.1",
            "InternalDNS one.internal",
            "Hostname one.internal"
        ]
    );
    let writes = running.api.writes();
    assert_eq!(
        writes,
        [
            "PATCH /api/v1/nodes/one.internal/status",
            "PATCH /api/v1/nodes/one.internal"
        ]
    );
    eventually("the Event", || running.api.events() == ["Normal Synced one.internal"]).await;
    eventually("the metric", || {
        running
            .metrics
            .encode()
            .unwrap()
            .contains("node_controller_initial_node_sync_delay_seconds_count 1")
    })
    .await;
    pause(30).await;
    assert_eq!(running.api.writes().len(), 2, "nothing more is written");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_taint_of_the_key_goes_whatever_its_value_and_effect() {
    let mut node = new_node("n.internal");
    node["spec"]["taints"] = json!([
        {"key": TAINT, "effect": "NoExecute"},
        {"key": "other", "effect": "NoSchedule"},
        {"key": TAINT, "value": "maybe", "effect": "PreferNoSchedule"},
    ]);
    let running = start(
        Api::with(vec![node]),
        aws(vec![instance("i-1", "n.internal", "10.0.0.1")]),
    );
    let node = initialized(&running, "n.internal").await;
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "other", "effect": "NoSchedule"}])
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_that_is_there_stays() {
    let mut node = new_node("n.internal");
    node["spec"]["providerID"] = "aws:///somewhere/else/i-1".into();
    let running = start(
        Api::with(vec![node]),
        aws(vec![instance("i-1", "x.internal", "10.0.0.1")]),
    );
    let node = initialized(&running, "n.internal").await;
    assert_eq!(node["spec"]["providerID"], "aws:///somewhere/else/i-1");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelets_ip_that_is_not_the_instances_keeps_the_taint_and_the_reason_is_told() {
    let mut node = new_node("n.internal");
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"});
    let running = start(
        Api::with(vec![node]),
        aws(vec![instance("i-1", "n.internal", "10.0.0.1")]),
    );
    eventually("the reason", || {
        running.api.events() == ["Warning NotInitialized n.internal"]
    })
    .await;
    assert!(
        running
            .metrics
            .encode()
            .unwrap()
            .contains("waiting{reason=\"ProvidedNodeIPNotFound\"} 1")
    );
    assert!(tainted(&running.api.node("n.internal").unwrap()));
    let asked = describes(&running.aws);
    running.aws.change(|world| {
        let instance = world.instances.get_mut(&InstanceId::new("i-1")).unwrap();
        instance.network_interfaces[0].private_ips.push("10.9.9.9".into());
    });
    initialized(&running, "n.internal").await;
    assert!(describes(&running.aws) > asked, "it was asked again");
    assert_eq!(running.api.addresses("n.internal")[0], "InternalIP 10.9.9.9");
    assert!(
        !running.metrics.encode().unwrap().contains("waiting{reason="),
        "nobody waits any more"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn missing_metadata_is_retried_slowly_until_ec2_knows_the_instance() {
    let running = start(Api::with(vec![new_node("i-1.ec2.internal")]), aws(vec![]));
    pause(600).await;
    let asked = describes(&running.aws);
    assert!((5..30).contains(&asked), "{asked} describes in ten minutes");
    running.aws.change(|world| {
        let late = instance("i-1", "i-1.ec2.internal", "10.0.0.1");
        world.instances.insert(late.id.clone(), late);
    });
    initialized(&running, "i-1.ec2.internal").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn three_hundred_new_nodes_share_two_describes() {
    let names: Vec<String> = (0..300).map(|n| format!("i-{n:04}")).collect();
    let api = Api::with(names.iter().map(|name| new_node(name)).collect());
    let instances = names
        .iter()
        .enumerate()
        .map(|(n, name)| instance(name, name, &format!("10.0.{}.{}", n / 250, n % 250)));
    let running = start(api, aws(instances.collect()));
    eventually("all are initialized", || {
        names.iter().all(|name| !tainted(&running.api.node(name).unwrap()))
    })
    .await;
    assert_eq!(describes(&running.aws), 2);
    assert_eq!(running.api.writes().len(), 600);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_address_leaves_the_addresses_alone() {
    let mut bare = instance("i-1", "i-1", "10.0.0.1");
    bare.network_interfaces.clear();
    bare.private_dns_name = None;
    let running = start(Api::with(vec![new_node("i-1")]), aws(vec![bare]));
    initialized(&running, "i-1").await;
    assert_eq!(running.api.addresses("i-1"), ["Hostname i-1"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_older_zone_label_decides_and_a_lone_newer_one_is_left_alone() {
    let node = |name: &str, labels: Value| {
        let id = format!("aws:///us-east-1a/{name}");
        json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"providerID": id}})
    };
    let both = json!({"failure-domain.beta.kubernetes.io/zone": "old", "topology.kubernetes.io/zone": "new"});
    let lone = json!({"topology.kubernetes.io/zone": "new"});
    let running = start(
        Api::with(vec![node("i-1", both), node("i-2", lone.clone())]),
        aws(vec![]),
    );
    eventually("the repair", || {
        running.api.node("i-1").unwrap()["metadata"]["labels"]["topology.kubernetes.io/zone"] == "old"
    })
    .await;
    pause(10).await;
    assert_eq!(running.api.node("i-2").unwrap()["metadata"]["labels"], lone);
    assert_eq!(running.api.writes(), ["PATCH /api/v1/nodes/i-1"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refresh_writes_nothing_when_only_the_order_differs() {
    let addresses = json!([
        {"type": "Hostname", "address": "one.internal"},
        {"type": "InternalDNS", "address": "one.internal"},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ]);
    let running = start(
        Api::with(vec![old_node("i-1", addresses)]),
        aws(vec![instance("i-1", "one.internal", "10.0.0.1")]),
    );
    pause(1000).await;
    assert_eq!(running.api.writes(), Vec::<String>::new());
    assert!(describes(&running.aws) >= 3);
    running.end().await;
}

/// An in-tree kubelet writes its own addresses after each of ours.
#[tokio::test(start_paused = true)]
async fn two_rewrites_in_a_row_are_the_last_until_the_kubelets_are_external() {
    let kubelets = json!([{"type": "InternalIP", "address": "10.0.0.99"}]);
    let node = old_node("i-1", kubelets);
    let running = start(
        Api::with(vec![node.clone()]),
        aws(vec![instance("i-1", "one.internal", "10.0.0.1")]),
    );
    for _ in 0..6 {
        pause(300).await;
        running.api.put(node.clone());
    }
    assert_eq!(running.api.writes().len(), 2);
    assert_eq!(running.api.events(), ["Warning AddressesContested i-1"]);
    assert!(
        running
            .metrics
            .encode()
            .unwrap()
            .contains("outrigger_node_address_rewrites_stopped 1")
    );
    running.external.send_replace(true);
    pause(301).await;
    let addresses = running
        .api
        .writes()
        .into_iter()
        .filter(|write| write.ends_with("/status"));
    assert_eq!(addresses.count(), 3, "the limit is off");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changed_behind_the_cache_is_planned_again() {
    let api = Api::with(vec![new_node("i-1")]);
    api.change_behind("i-1", |node| {
        let taint = node["spec"]["taints"][0].clone();
        node["spec"]["taints"] = json!([{"key": "first", "effect": "NoSchedule"}, taint]);
    });
    let running = start(api, aws(vec![instance("i-1", "i-1", "10.0.0.1")]));
    let node = initialized(&running, "i-1").await;
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "first", "effect": "NoSchedule"}])
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_node_of_the_same_name_is_never_written_by_an_old_plan() {
    let api = Api::with(vec![new_node("i-1")]);
    api.change_behind("i-1", |node| node["metadata"]["uid"] = "another".into());
    let running = start(api, aws(vec![instance("i-1", "i-1", "10.0.0.1")]));
    pause(5).await;
    let node = running.api.node("i-1").unwrap();
    assert!(tainted(&node) && node["spec"]["providerID"].is_null());
    assert_eq!(running.api.addresses("i-1"), ["Hostname i-1"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_cloud_keeps_the_taint_and_is_asked_again() {
    for (action, code) in [
        ("DescribeInstances", "RequestLimitExceeded"),
        ("DescribeAvailabilityZones", "InternalError"),
    ] {
        let aws = aws(vec![instance("i-1", "i-1", "10.0.0.1")]);
        aws.fail_always(action, AwsError::answered(action, code, "x"));
        let running = start(Api::with(vec![new_node("i-1")]), aws);
        pause(60).await;
        assert!(tainted(&running.api.node("i-1").unwrap()), "{action}");

        let calls = running.aws.calls();
        let asked = calls.iter().filter(|call| call.action == action).count();
        assert!(asked > 1, "{action}: {asked} calls");

        running.aws.allow(action);
        initialized(&running, "i-1").await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_nodes_are_left_alone() {
    let foreign = ["gce://project/zone/node", "aws:///us-east-1a/mi-0123456789abcdef0"].map(|provider_id| {
        let mut node = new_node(provider_id.rsplit('/').next().unwrap());
        node["spec"]["providerID"] = provider_id.into();
        node
    });
    let running = start(Api::with(foreign.into()), aws(vec![]));
    pause(600).await;
    assert!(running.aws.calls().is_empty());
    assert_eq!(running.api.writes(), Vec::<String>::new());
    let metrics = running.metrics.encode().unwrap();
    assert!(metrics.contains("outrigger_nodes{kind=\"foreign\"} 2"), "{metrics}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_permit_nothing_is_written_and_the_controller_ends() {
    let (_grantor, permit) = Permit::pair();
    let running = start_with(
        Api::with(vec![new_node("i-1")]),
        aws(vec![instance("i-1", "i-1", "10.0.0.1")]),
        permit,
    );
    let ended = running.task.await.unwrap();
    assert!(matches!(ended, Err(node::Error::NotLeader(_))), "{ended:?}");
    assert_eq!(running.api.writes(), Vec::<String>::new());
    assert_eq!(running.api.events(), Vec::<String>::new());
}
