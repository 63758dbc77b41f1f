//! Targets of a load balancer whose Service cannot have what it asks for.

use outrigger_aws::Error as AwsError;
use outrigger_aws::fake::World;

use super::super::error::Error;
use super::super::queue::service_state::CONFIRMATION;
use super::fixture::{Fixture, LB, world};
use super::network;

/// A third Node, and the loss of the second, which somebody excludes.
fn change_nodes(fixture: &Fixture) {
    fixture.node("i-3", true);
    fixture.nodes.observe(kube::runtime::watcher::Event::Apply(
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "i-2", "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}},
            "spec": {"providerID": "aws:///eu-central-1a/i-2"},
        }))
        .unwrap(),
    ));
}

async fn classic() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

fn instances(world: &World) -> Vec<String> {
    let described = &world.load_balancers[LB].described;
    described.instances.iter().map(ToString::to_string).collect()
}

const UPDATED: &str = "Normal UpdatedLoadBalancer Updated load balancer with new hosts";

#[tokio::test(start_paused = true)]
async fn targets_of_a_classic_load_balancer_are_updated_while_an_annotation_is_wrong() {
    let mut fixture = classic().await;
    fixture.annotate("cross-zone-load-balancing-enabled", "on");
    assert!(matches!(fixture.sync().await, Err(Error::Invalid(_))));
    assert!(fixture.aws.writes().is_empty(), "there was nothing to follow");
    fixture.restart();
    change_nodes(&fixture);
    assert!(matches!(fixture.sync().await, Err(Error::Invalid(_))));
    assert_eq!(instances(&fixture.aws.world()), ["i-1", "i-3"]);
    assert_eq!(fixture.aws.writes().len(), 2, "{:?}", fixture.aws.writes());
    assert!(fixture.events().contains(&UPDATED.to_owned()), "{:?}", fixture.events());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_group_becomes_a_target_and_gets_its_rule() {
    let fixture = classic().await;
    fixture.aws.change(|world| {
        let mut group = world.security_groups["sg-node"].clone();
        group.id = "sg-other".into();
        group.ingress.clear();
        world.security_groups.insert(group.id.clone(), group);
        let instance = world.instances.values_mut().find(|i| i.id.as_str() == "i-3").unwrap();
        instance.security_groups = vec!["sg-other".into()];
    });
    fixture.annotate("subnets", "subnet-missing");
    change_nodes(&fixture);
    assert!(matches!(fixture.sync().await, Err(Error::Environment(_))));
    let world = fixture.aws.world();
    assert_eq!(instances(&world), ["i-1", "i-3"]);
    assert_eq!(world.security_groups["sg-other"].ingress.len(), 1);
    assert!(fixture.aws.writes()[0].starts_with("RegisterInstances"));
}

#[tokio::test(start_paused = true)]
async fn a_mass_loss_must_be_confirmed_here_too() {
    let fixture = classic().await;
    fixture.annotate("cross-zone-load-balancing-enabled", "on");
    fixture.drop_node("i-2");
    fixture.sync().await.unwrap_err();
    assert_eq!(instances(&fixture.aws.world()), ["i-1", "i-2"]);
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    fixture.sync().await.unwrap_err();
    assert_eq!(instances(&fixture.aws.world()), ["i-1"]);
}

#[tokio::test(start_paused = true)]
async fn targets_are_updated_after_permanent_errors_but_not_after_transient_ones() {
    for (code, expected) in [("ValidationError", ["i-1", "i-3"]), ("Throttling", ["i-1", "i-2"])] {
        let fixture = classic().await;
        fixture.annotate("connection-idle-timeout", "99");
        change_nodes(&fixture);
        let error = AwsError::answered("ModifyLoadBalancerAttributes", code, "no");
        fixture.aws.fail_next("ModifyLoadBalancerAttributes", error);
        assert!(matches!(fixture.sync().await, Err(Error::Aws(_))));
        assert_eq!(instances(&fixture.aws.world()), expected, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_is_not_read_for_a_service_that_never_had_a_load_balancer() {
    let fixture = Fixture::new(world());
    fixture.annotate("cross-zone-load-balancing-enabled", "on");
    fixture.sync().await.unwrap_err();
    assert!(fixture.aws.calls().is_empty(), "{:?}", fixture.aws.calls());
}

#[tokio::test(start_paused = true)]
async fn targets_of_every_group_of_a_network_load_balancer_are_updated() {
    let fixture = network::settled().await;
    fixture.annotate("healthcheck-protocol", "smoke");
    change_nodes(&fixture);
    assert!(matches!(fixture.sync().await, Err(Error::Invalid(_))));
    let world = fixture.aws.world();
    for (port, expected) in [(80, ["i-1:30080", "i-3:30080"]), (443, ["i-1:30443", "i-3:30443"])] {
        assert_eq!(network::targets(&network::behind(&world, port)), expected);
    }
    assert!(fixture.events().contains(&UPDATED.to_owned()), "{:?}", fixture.events());
    let writes = network::actions(&fixture);
    assert!(
        writes
            .iter()
            .all(|action| action.ends_with("RegisterTargets") || action == "DeregisterTargets"),
        "{writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_mass_loss_of_a_network_load_balancer_must_be_confirmed_here_too() {
    let fixture = network::settled().await;
    fixture.annotate("healthcheck-protocol", "smoke");
    fixture.drop_node("i-2");
    let targets = || network::targets(&network::behind(&fixture.aws.world(), 80));
    fixture.sync().await.unwrap_err();
    assert_eq!(targets(), ["i-1:30080", "i-2:30080"]);
    tokio::time::advance(CONFIRMATION).await;
    fixture.sync().await.unwrap_err();
    assert_eq!(targets(), ["i-1:30080"]);
}

/// Somebody leads the listener to a group of their own, of which the targets are none of the Service's.
#[tokio::test(start_paused = true)]
async fn a_confirmed_loss_stays_confirmed_if_aws_refuses_the_deregistration() {
    let fixture = network::fixture();
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    let mut fixture = network::settle(fixture).await;
    network::lead_by_hand(&fixture, 80);
    fixture.drop_node("i-2");
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30081));
    fixture.restart();
    fixture.sync().await.unwrap();
    assert_eq!(
        network::behind(&fixture.aws.world(), 80).described.name,
        network::BY_HAND
    );
    tokio::time::advance(CONFIRMATION).await;
    let error = AwsError::answered("ModifyListener", "ValidationError", "no");
    fixture.aws.fail_next("ModifyListener", error);
    assert!(matches!(fixture.sync().await, Err(Error::Aws(_))));
    fixture.sync().await.unwrap();
    let group = network::behind(&fixture.aws.world(), 80);
    assert_eq!(
        network::targets(&group),
        ["i-1:30081"],
        "it waits for the same loss again"
    );
}
