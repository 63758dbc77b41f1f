//! Source ranges that nothing enforces, because Nodes see the load balancer's addresses.

use outrigger_aws::fake::traffic::contains;

use super::super::fixture::Fixture;
use super::{fixture, managed};

const REASON: &str = "SourceRangesNotEnforced";

fn limit(fixture: &Fixture, ranges: &[&str]) {
    fixture.change(|service| {
        let ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(ranges);
    });
}

fn preserve_clients(fixture: &Fixture, value: &str) {
    fixture.annotate(
        "target-group-attributes",
        &format!("preserve_client_ip.enabled={value}"),
    );
}

async fn warnings(fixture: &Fixture) -> usize {
    fixture.settle().await;
    let events = fixture.events();
    events.iter().filter(|event| event.contains(REASON)).count()
}

/// Whether a rule of the Nodes allows packets from the load balancer's first subnet at a node port.
fn lets_balancer_in(fixture: &Fixture, node_port: i32) -> bool {
    let world = fixture.aws.world();
    let mut rules = world.security_groups["sg-node"].ingress.iter();
    rules.any(|rule| {
        let covers = rule.from_port <= Some(node_port) && Some(node_port) <= rule.to_port;
        covers && rule.ranges.iter().any(|range| contains(&range.cidr, "10.0.0.0/24"))
    })
}

#[tokio::test(start_paused = true)]
async fn source_ranges_that_nothing_enforces_are_reported_once() {
    let fixture = fixture();
    limit(&fixture, &["203.0.113.0/24"]);
    preserve_clients(&fixture, "false");
    assert_eq!(warnings(&fixture).await, 1);
    assert!(lets_balancer_in(&fixture, 30080), "and with it all clients");

    fixture.annotate("connection-idle-timeout", "61");
    assert_eq!(warnings(&fixture).await, 1, "known");

    preserve_clients(&fixture, "true");
    assert_eq!(warnings(&fixture).await, 1);
    preserve_clients(&fixture, "false");
    assert_eq!(warnings(&fixture).await, 2);
}

/// The health checks have a port of their own, so that the node port is closed for the load balancer.
#[tokio::test(start_paused = true)]
async fn with_the_local_policy_they_let_no_client_in_and_are_reported_too() {
    let fixture = fixture();
    limit(&fixture, &["203.0.113.0/24"]);
    preserve_clients(&fixture, "false");
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        spec.external_traffic_policy = Some("Local".into());
        spec.health_check_node_port = Some(31000);
    });
    assert_eq!(warnings(&fixture).await, 1);
    assert!(!lets_balancer_in(&fixture, 30080));
}

#[tokio::test(start_paused = true)]
async fn source_ranges_that_are_enforced_or_let_everyone_in_are_not_reported() {
    let open = fixture();
    preserve_clients(&open, "false");
    assert_eq!(warnings(&open).await, 0, "no source ranges");

    let preserving = fixture();
    limit(&preserving, &["203.0.113.0/24"]);
    assert_eq!(warnings(&preserving).await, 0, "the default preserves clients");
    preserve_clients(&preserving, "true");
    assert_eq!(warnings(&preserving).await, 0);

    let own_group = managed();
    limit(&own_group, &["203.0.113.0/24"]);
    preserve_clients(&own_group, "false");
    assert_eq!(warnings(&own_group).await, 0, "the load balancer's group enforces them");
}
