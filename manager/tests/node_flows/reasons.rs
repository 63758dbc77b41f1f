//! Each reason why a Node waits is reported after 30 s, by an Event and a metric.

use outrigger_aws::fake::FakeAws;
use outrigger_aws::{Error as AwsError, InstanceId, InstanceState};
use serde_json::{Value, json};

use crate::node_support::running::{pause, start, tainted};
use crate::node_support::{Api, aws, eventually, instance, new_node, set_state};

fn named(annotation: &str) -> Value {
    let mut node = new_node("i-1");
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": annotation});
    node
}

/// A Node, how AWS is, and the reason that follows.
type Case = (&'static str, Value, Box<dyn Fn(&FakeAws)>);

fn keep_failing(aws: &FakeAws, action: &'static str, code: &str) {
    for _ in 0..1000 {
        aws.fail_next(action, AwsError::answered(action, code, "no"));
    }
}

fn change(aws: &FakeAws, change: impl FnOnce(&mut outrigger_aws::Instance)) {
    aws.change(|world| change(world.instances.get_mut(&InstanceId::new("i-1")).unwrap()));
}

fn cases() -> Vec<Case> {
    let mut elsewhere = new_node("n");
    elsewhere["spec"]["providerID"] = "gce://p/z/n".into();
    let zones = "DescribeAvailabilityZones";
    vec![
        ("InstanceNotFound", new_node("i-2"), Box::new(|_| {})),
        (
            "InstanceNotFound",
            new_node("i-1"),
            Box::new(|aws| set_state(aws, "i-1", InstanceState::Terminated)),
        ),
        (
            "AmbiguousName",
            new_node("one.internal"),
            Box::new(|aws| {
                aws.change(|world| {
                    let twin = instance("i-3", "one.internal", "10.0.0.3");
                    world.instances.insert(twin.id.clone(), twin);
                });
            }),
        ),
        ("NotAnInstance", elsewhere, Box::new(|_| {})),
        (
            "NoZone",
            new_node("i-1"),
            Box::new(|aws| change(aws, |instance| instance.availability_zone = None)),
        ),
        (
            "UnknownZone",
            new_node("i-1"),
            Box::new(|aws| aws.change(|world| world.zones.clear())),
        ),
        (
            "BadAddress",
            new_node("i-1"),
            Box::new(|aws| change(aws, |instance| instance.public_ip = Some("x".into()))),
        ),
        ("ProvidedNodeIPUnreadable", named("x"), Box::new(|_| {})),
        ("ProvidedNodeIPNotFound", named("10.9.9.9"), Box::new(|_| {})),
        (
            "AccessDenied",
            new_node("i-1"),
            Box::new(move |aws| keep_failing(aws, "DescribeInstances", "UnauthorizedOperation")),
        ),
        (
            "Throttled",
            new_node("i-1"),
            Box::new(move |aws| keep_failing(aws, zones, "RequestLimitExceeded")),
        ),
        (
            "CloudError",
            new_node("i-1"),
            Box::new(move |aws| keep_failing(aws, zones, "InternalError")),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_reason_is_told_by_event_and_metric() {
    for (reason, node, prepare) in cases() {
        let aws = aws(vec![instance("i-1", "one.internal", "10.0.0.1")]);
        prepare(&aws);
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        let running = start(Api::with(vec![node]), aws);
        pause(25).await;
        assert!(running.api.events().is_empty(), "{reason}: not before 30 s");
        pause(65).await;
        assert_eq!(
            running.api.events(),
            [format!("Warning NotInitialized {name}")],
            "{reason}"
        );
        let metric = format!("outrigger_node_initialization_waiting{{reason=\"{reason}\"}} 1");
        let metrics = running.metrics.encode().unwrap();
        assert!(metrics.contains(&metric), "{metric} is missing in\n{metrics}");
        assert!(tainted(&running.api.node(&name).unwrap()), "{reason}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_a_reason_too() {
    for (reason, status) in [("Conflict", 409), ("WriteError", 403)] {
        let api = Api::with(vec![new_node("i-1")]);
        for _ in 0..2000 {
            api.fail_next("PATCH /api/v1/nodes/i-1", status);
        }
        let running = start(api, aws(vec![instance("i-1", "one.internal", "10.0.0.1")]));
        eventually("the Event", || running.api.events() == ["Warning NotInitialized i-1"]).await;
        let metric = format!("waiting{{reason=\"{reason}\"}} 1");
        assert!(running.metrics.encode().unwrap().contains(&metric), "{metric}");
        running.end().await;
    }
}
