//! Failures that the properties have found.

use super::super::super::spec::names::PROXY_POLICY;
use super::super::fixture::{Fixture, LB, world};

#[tokio::test(start_paused = true)]
async fn a_new_listener_before_a_backend_with_the_proxy_protocol_takes_it_away_at_once() {
    let fixture = Fixture::new(world());
    fixture.annotate("proxy-protocol", "*");
    fixture.settle().await;
    let policies = || {
        fixture.aws.world().load_balancers[LB]
            .described
            .backend_policies
            .clone()
    };
    assert!(policies()[&30080].contains(PROXY_POLICY));
    fixture.change(|service| {
        service.metadata.annotations = None;
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
    });
    fixture.sync().await.unwrap();
    assert!(
        policies().is_empty(),
        "the backend would get headers that it does not expect until the next look"
    );
}

#[tokio::test(start_paused = true)]
async fn subnets_that_all_have_others_in_their_zones_are_swapped_one_after_the_other() {
    let mut world = world();
    for (id, like) in [("subnet-a2", 0), ("subnet-b2", 1)] {
        let mut subnet = world.subnets[like].clone();
        subnet.id = id.into();
        world.subnets.push(subnet);
    }
    let fixture = Fixture::new(world);
    fixture.settle().await;
    let subnets = || fixture.aws.world().load_balancers[LB].described.subnets.clone();
    assert_eq!(subnets().into_iter().collect::<Vec<_>>(), ["subnet-a", "subnet-b"]);
    fixture.annotate("subnets", "subnet-a2,subnet-b2");
    fixture.sync().await.unwrap();
    assert_eq!(subnets().into_iter().collect::<Vec<_>>(), ["subnet-a2", "subnet-b2"]);
    fixture.annotate("subnets", "subnet-b2");
    fixture.settle().await;
    fixture.annotate("subnets", "subnet-b");
    let error = fixture.sync().await.unwrap_err().to_string();
    assert!(error.contains("subnet-b2") && error.contains("another zone"), "{error}");
}
