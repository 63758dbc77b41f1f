//! Target groups that somebody has made and led a listener to, and those of names that were given once.

use std::time::Duration;

use super::super::fixture::Fixture;
use super::deletion::{delete, is_clean};
use super::*;

/// The name of earlier in-tree providers for the target group of the Service's first port.
const EARLIER: &str = "k8s-tg-5887b1109c74d-80-30080";

/// A change of the Service, and the names of the target groups after it.
type Case = (fn(&Fixture), &'static [&'static str]);

/// The Service's first port gets another node port, which a target group does not change.
fn move_first_port(fixture: &Fixture) {
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30081));
}

fn drop_first_port(fixture: &Fixture) {
    fixture.change(|service| drop(service.spec.as_mut().unwrap().ports.as_mut().unwrap().remove(0)));
}

#[tokio::test(start_paused = true)]
async fn one_stays_when_its_listener_is_led_back_or_goes_and_when_the_load_balancer_goes() {
    let cases: [Case; 3] = [
        (move_first_port, &[BY_HAND, "own", "own"]),
        (drop_first_port, &[BY_HAND, "own"]),
        (|fixture| fixture.change(delete), &[BY_HAND]),
    ];
    for (change, left) in cases {
        let mut fixture = settled().await;
        lead_by_hand(&fixture, 80);
        change(&fixture);
        fixture.restart();
        fixture.settle().await;
        assert_eq!(group_names(&fixture.aws.world()), left, "{:?}", fixture.aws.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_serves_is_used_as_it_is() {
    let mut fixture = settled().await;
    lead_by_hand(&fixture, 80);
    fixture.restart();
    fixture.settle().await;
    let group = behind(&fixture.aws.world(), 80);
    assert_eq!(group.described.name, BY_HAND);
    assert_eq!(targets(&group), ["i-1:30080", "i-2:30080"]);
}

/// AWS keeps it as a target only where it is one already, and that group is not the load balancer's any more.
#[tokio::test(start_paused = true)]
async fn nothing_is_opened_for_an_instance_that_is_no_more_and_stays_a_target_there() {
    let fixture = fixture();
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    own_group_of(&fixture, "i-2", "sg-other");
    let mut fixture = settle(fixture).await;
    let own = behind(&fixture.aws.world(), 80);
    lead_by_hand(&fixture, 80);
    fixture.aws.change(|world| {
        world.network.target_groups.remove(&own.described.arn);
        let group = world.network.target_groups.values_mut().next().unwrap();
        group.targets = own.targets;
    });
    terminate(&fixture, "i-2");
    move_first_port(&fixture);
    fixture.restart();
    // Answers about instances are used for no longer than this.
    tokio::time::advance(Duration::from_secs(600)).await;
    fixture.settle().await;
    let opened = |write: &&String| write.starts_with("AuthorizeSecurityGroupIngress sg-other");
    let writes = fixture.aws.writes();
    assert_eq!(writes.iter().find(opened), None, "{writes:#?}");
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30081"]);
    assert_eq!(rules(&fixture.aws.world(), "sg-other"), [""; 0]);
}

/// They did not give tags to all of them.
#[tokio::test(start_paused = true)]
async fn one_with_a_name_of_earlier_providers_goes() {
    let cases: [Case; 3] = [
        (move_first_port, &["own", "own"]),
        (drop_first_port, &["own"]),
        (|fixture| fixture.change(delete), &[]),
    ];
    for (change, left) in cases {
        let mut fixture = settled().await;
        fixture.aws.change(|world| {
            let arn = behind(world, 80).described.arn;
            let group = world.network.target_groups.get_mut(&arn).unwrap();
            group.described.name = EARLIER.into();
            group.tags.clear();
        });
        change(&fixture);
        fixture.restart();
        fixture.settle().await;
        assert_eq!(group_names(&fixture.aws.world()), left, "{:?}", fixture.aws.writes());
        assert_eq!(left.is_empty(), is_clean(fixture.aws.world()));
    }
}
