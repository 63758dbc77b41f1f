//! Actions that AWS denies permanently while a load balancer is created or changed: all steps that do not depend on
//! them are done, and nothing is removed before its replacement serves.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Error as AwsError;

use super::super::error::Error;
use super::fixture::{Fixture, LB, world};
use super::network;

/// Reconciles until nothing changes any more; returns the result of the last pass.
async fn passes(fixture: &Fixture) -> Result<(), Error> {
    let mut last = Ok(());
    for _ in 0..5 {
        last = fixture.sync().await.map(|_| ());
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    last
}

fn deny(fixture: &Fixture, action: &str) {
    fixture.aws.deny(&format!("elasticloadbalancing:{action}"));
}

fn is_named(fixture: &Fixture, action: &str) -> bool {
    let events = fixture.events();
    events
        .iter()
        .any(|event| event.starts_with("Warning") && event.contains(action))
}

/// The port at this place of the list.
fn port(service: &mut Service, at: usize, port: i32, node_port: i32) {
    let entry = &mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[at];
    (entry.port, entry.node_port) = (port, Some(node_port));
}

fn node_ports(fixture: &Fixture, description: &str) -> Vec<i32> {
    let world = fixture.aws.world();
    let rules = world.security_groups["sg-node"].ingress.iter();
    let ours = rules.filter(|rule| {
        let mut descriptions = rule.ranges.iter().filter_map(|range| range.description.as_deref());
        descriptions.any(|of| of == description)
    });
    ours.filter_map(|rule| rule.from_port).collect()
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_gets_its_instances_and_listeners_without_its_settings() {
    for action in [
        "CreateLoadBalancerPolicy",
        "SetLoadBalancerPoliciesForBackendServer",
        "SetLoadBalancerPoliciesOfListener",
        "ModifyLoadBalancerAttributes",
        "ConfigureHealthCheck",
    ] {
        let fixture = Fixture::new(world());
        for (annotation, value) in [
            ("proxy-protocol", "*"),
            ("ssl-cert", "arn:cert"),
            ("ssl-ports", "443"),
            ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
            ("connection-idle-timeout", "120"),
        ] {
            fixture.annotate(annotation, value);
        }
        deny(&fixture, action);
        passes(&fixture).await.unwrap_err();
        let before = fixture.aws.world().load_balancers[LB].clone();
        assert_eq!(before.described.instances.len(), 2, "{action}");
        assert!(is_named(&fixture, action), "{action}: {:?}", fixture.events());

        fixture.change(|service| port(service, 0, 81, 30081));
        passes(&fixture).await.unwrap_err();
        let after = fixture.aws.world().load_balancers[LB].clone();
        let ports: Vec<i32> = after.described.listeners.iter().map(|listener| listener.port).collect();
        assert!(ports.contains(&81) && !ports.contains(&80), "{action}: {ports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_gets_its_targets_and_listeners_without_its_settings() {
    for (action, annotation, value) in [
        ("ModifyTargetGroup", "healthcheck-healthy-threshold", "5"),
        (
            "ModifyTargetGroupAttributes",
            "target-group-attributes",
            "preserve_client_ip.enabled=false",
        ),
        (
            "ModifyLoadBalancerAttributes",
            "cross-zone-load-balancing-enabled",
            "true",
        ),
    ] {
        let fixture = network::settled().await;
        deny(&fixture, action);
        fixture.annotate(annotation, value);
        fixture.change(|service| port(service, 0, 81, 30081));
        passes(&fixture).await.unwrap_err();
        let world = fixture.aws.world();
        let ports: Vec<i32> = network::listeners(&world).into_keys().collect();
        assert!(ports.contains(&81) && !ports.contains(&80), "{action}: {ports:?}");
        assert_eq!(network::targets(&network::behind(&world, 81)).len(), 2, "{action}");
        assert!(is_named(&fixture, action), "{action}: {:?}", fixture.events());
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_without_a_replacement_is_not_removed() {
    let fixture = network::settled().await;
    deny(&fixture, "CreateListener");
    fixture.change(|service| {
        port(service, 0, 81, 30080);
        port(service, 1, 443, 31443);
    });
    passes(&fixture).await.unwrap_err();
    let world = fixture.aws.world();
    let ports: Vec<i32> = network::listeners(&world).into_keys().collect();
    assert_eq!(ports, [80, 443]);
    assert_eq!(
        network::targets(&network::behind(&world, 443)),
        ["i-1:31443", "i-2:31443"],
        "another port is served"
    );
    assert!(is_named(&fixture, "CreateListener"), "{:?}", fixture.events());
}

#[tokio::test(start_paused = true)]
async fn rules_stay_while_a_listener_uses_their_port() {
    let fixture = network::settled().await;
    let before = node_ports(&fixture, network::CLIENT);
    let old = before[0];
    deny(&fixture, "ModifyListener");
    fixture.change(|service| port(service, 0, 80, 31080));
    passes(&fixture).await.unwrap_err();
    let open = node_ports(&fixture, network::CLIENT);
    assert!(
        open.contains(&old) && open.contains(&31080),
        "before {before:?}, after {open:?}"
    );
    let world = fixture.aws.world();
    assert_eq!(network::targets(&network::behind(&world, 80)).len(), 2);
    assert_eq!(world.network.target_groups.len(), 3, "the old target group is in use");
}

#[tokio::test(start_paused = true)]
async fn a_listener_forwards_to_no_target_group_that_traffic_cannot_reach() {
    let fixture = network::settled().await;
    let group = network::behind(&fixture.aws.world(), 80).described.arn;
    fixture.aws.deny("ec2:AuthorizeSecurityGroupIngress");
    fixture.change(|service| port(service, 0, 80, 31080));
    passes(&fixture).await.unwrap_err();
    assert_eq!(network::behind(&fixture.aws.world(), 80).described.arn, group);

    let fixture = network::settled().await;
    let group = network::behind(&fixture.aws.world(), 80).described.arn;
    deny(&fixture, "RegisterTargets");
    fixture.change(|service| port(service, 0, 80, 31080));
    passes(&fixture).await.unwrap_err();
    assert_eq!(network::behind(&fixture.aws.world(), 80).described.arn, group);
}

/// The ports on which health checks may reach the Nodes: a rule for each subnet.
fn checked(fixture: &Fixture) -> Vec<i32> {
    let ports: BTreeSet<i32> = node_ports(fixture, network::HEALTH).into_iter().collect();
    ports.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn the_rule_of_a_health_check_stays_as_long_as_its_port_is_checked() {
    let fixture = network::settled().await;
    fixture.annotate("healthcheck-port", "8081");
    fixture.settle().await;
    assert_eq!(checked(&fixture), [8081]);

    deny(&fixture, "ModifyTargetGroup");
    fixture.annotate("healthcheck-port", "8082");
    passes(&fixture).await.unwrap_err();
    assert_eq!(checked(&fixture), [8081, 8082]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_not_moved_to_a_target_group_without_its_attributes() {
    let fixture = network::settled().await;
    fixture.annotate("target-group-attributes", "proxy_protocol_v2.enabled=true");
    fixture.settle().await;
    let group = network::behind(&fixture.aws.world(), 80).described.arn;

    deny(&fixture, "ModifyTargetGroupAttributes");
    fixture.annotate("healthcheck-interval", "30");
    fixture.annotate("healthcheck-protocol", "HTTP");
    passes(&fixture).await.unwrap_err();
    let world = fixture.aws.world();
    assert!(world.network.target_groups.len() > 2, "the new group was created");
    assert_eq!(network::behind(&world, 80).described.arn, group);
}

/// Each step would be tried without success.
#[tokio::test(start_paused = true)]
async fn without_usable_credentials_the_pass_ends() {
    let fixture = Fixture::new(world());
    let expired = AwsError::answered("ConfigureHealthCheck", "ExpiredToken", "The security token has expired");
    fixture.aws.fail_always("ConfigureHealthCheck", expired);
    fixture.sync().await.unwrap_err();
    let writes = fixture.aws.writes();
    assert!(
        writes.iter().any(|write| write.starts_with("ConfigureHealthCheck")),
        "{writes:?}"
    );
    assert!(!writes.iter().any(|write| write.starts_with("Register")), "{writes:?}");
}
