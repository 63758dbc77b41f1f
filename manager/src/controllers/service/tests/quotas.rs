//! AWS's quotas never take away what works.

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{IpPermission, IpRange};
use outrigger_aws::fake::World;

use super::fixture::{Fixture, LB, exclude, instance, world};
use super::network;

/// More client networks than one security group has rules for.
fn many_networks(fixture: &Fixture) {
    let ranges = (0..40).map(|n| format!("10.{n}.0.0/16")).collect();
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(ranges));
}

fn reported(fixture: &Fixture, reason: &str) -> Vec<String> {
    let prefix = format!("Warning {reason} ");
    let events = fixture.events();
    events.into_iter().filter(|event| event.starts_with(&prefix)).collect()
}

fn classic_targets(fixture: &Fixture) -> Vec<String> {
    let world = fixture.aws.world();
    let targets = world.load_balancers[LB].described.instances.iter();
    targets.map(ToString::to_string).collect()
}

/// Two ports and path MTU discovery from 40 networks: 120 rules.
#[tokio::test(start_paused = true)]
async fn too_many_client_networks_leave_the_rules_of_a_classic_load_balancer() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    let rules = || fixture.aws.world().security_groups["sg-new1"].ingress.clone();
    let before = rules();

    many_networks(&fixture);
    for _ in 0..3 {
        fixture.sync().await.unwrap_err();
        assert_eq!(rules(), before);
    }

    let told = reported(&fixture, "TooManyRules");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("sg-new1 would have 120 rules") && told[0].contains("60"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_client_networks_leave_the_rules_of_a_network_load_balancer() {
    let fixture = network::settled().await;
    let before = network::rules(&fixture.aws.world(), "sg-node");

    many_networks(&fixture);
    for _ in 0..3 {
        fixture.sync().await.unwrap_err();
        assert_eq!(network::rules(&fixture.aws.world(), "sg-node"), before);
    }

    let told = reported(&fixture, "TooManyRules");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("sg-node would have"), "{told:?}");
}

/// A security group of i-4 without capacity for one more rule.
fn with_full_group(world: &mut World) {
    let range = |n: usize| IpRange {
        cidr: format!("192.0.2.{n}/32"),
        description: None,
    };
    let mut full = world.security_groups["sg-node"].clone();
    full.id = "sg-full".into();
    full.ingress = (0..world.quotas.rules)
        .map(|n| IpPermission {
            protocol: "tcp".into(),
            from_port: Some(22),
            to_port: Some(22),
            ranges: vec![range(n)],
            ..IpPermission::default()
        })
        .collect();
    world.security_groups.insert(full.id.clone(), full);

    let mut node = instance("i-4");
    node.security_groups = vec!["sg-full".into()];
    world.instances.insert(node.id.clone(), node);
}

#[tokio::test(start_paused = true)]
async fn a_full_group_of_one_node_stops_no_other_target() {
    let fixture = Fixture::new(world());
    fixture.aws.change(with_full_group);
    fixture.settle().await;

    fixture.node("i-4", true);
    fixture.sync().await.unwrap_err();
    fixture.node("i-3", true);
    exclude(&fixture, "i-2");
    fixture.sync().await.unwrap_err();

    assert_eq!(classic_targets(&fixture), ["i-1", "i-3", "i-4"]);
    assert!(fixture.aws.world().security_groups["sg-full"].ingress.len() == 60);
    assert_eq!(reported(&fixture, "TooManyRules").len(), 1, "{:?}", fixture.events());
}

/// The same while the spec is refused.
#[tokio::test(start_paused = true)]
async fn a_full_group_of_one_node_stops_no_target_of_a_refused_spec() {
    let fixture = Fixture::new(world());
    fixture.aws.change(with_full_group);
    fixture.settle().await;

    fixture.annotate("connection-idle-timeout", "soon");
    fixture.node("i-4", true);
    fixture.node("i-3", true);
    exclude(&fixture, "i-2");
    fixture.sync().await.unwrap_err();

    assert_eq!(classic_targets(&fixture), ["i-1", "i-3", "i-4"]);
}

/// Two ports and two Nodes use all of the zone's targets.
#[tokio::test(start_paused = true)]
async fn at_the_quota_of_targets_lost_nodes_leave_and_as_many_join_as_fit() {
    let fixture = network::settled().await;
    fixture.aws.change(|world| world.quotas.targets_per_zone = 4);
    fixture
        .aws
        .change(|world| _ = world.instances.insert(InstanceId::new("i-4"), instance("i-4")));

    exclude(&fixture, "i-2");
    fixture.node("i-3", true);
    fixture.node("i-4", true);
    fixture.sync().await.unwrap();

    let targets = |port| network::targets(&network::behind(&fixture.aws.world(), port));
    assert_eq!(targets(80), ["i-1:30080", "i-3:30080"]);
    assert_eq!(targets(443), ["i-1:30443", "i-3:30443"]);
    assert_eq!(reported(&fixture, "TooManyTargets").len(), 1, "{:?}", fixture.events());

    fixture.aws.change(|world| world.quotas.targets_per_zone = 6);
    fixture.settle().await;
    assert_eq!(targets(80), ["i-1:30080", "i-3:30080", "i-4:30080"]);
    assert_eq!(targets(443), ["i-1:30443", "i-3:30443", "i-4:30443"]);
}

/// Another node port needs another target group.
#[tokio::test(start_paused = true)]
async fn a_new_target_group_gets_the_serving_instances_first() {
    let fixture = network::settled().await;
    fixture.drop_node("i-1");
    fixture.node("i-3", true);
    fixture.settle().await;
    fixture.aws.change(|world| world.quotas.targets_per_group = 2);

    fixture.node("i-1", true);
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.external_traffic_policy, spec.health_check_node_port) = (Some("Local".into()), Some(32000));
    });
    fixture.sync().await.unwrap();

    let targets = |port| network::targets(&network::behind(&fixture.aws.world(), port));
    assert_eq!(targets(80), ["i-2:30080", "i-3:30080"]);
    assert_eq!(targets(443), ["i-2:30443", "i-3:30443"]);
}

#[tokio::test(start_paused = true)]
async fn the_address_is_written_if_one_of_two_listeners_fits() {
    let fixture = network::fixture();
    fixture.aws.change(|world| world.quotas.targets_per_zone = 3);
    fixture.sync().await.unwrap_err();

    let world = fixture.aws.world();
    assert_eq!(network::listeners(&world).keys().collect::<Vec<_>>(), [&80]);
    assert!(
        network::rules(&world, "sg-node")
            .iter()
            .any(|rule| rule.starts_with("tcp/30080"))
    );
    let status = fixture.service().status.and_then(|status| status.load_balancer);
    assert!(
        status.is_some_and(|status| status.ingress.is_some()),
        "{:?}",
        fixture.events()
    );
    assert_eq!(reported(&fixture, "TooManyTargets").len(), 1, "{:?}", fixture.events());
}
