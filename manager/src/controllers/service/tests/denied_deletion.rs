//! Deletions that AWS denies for good.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use outrigger_aws::Error as AwsError;

use super::super::error::Error;
use super::super::spec::names::FINALIZER;
use super::fixture::{Fixture, LB, world};
use super::network;

const REVOKE: &str = "RevokeSecurityGroupIngress";
const MINUTE: Duration = Duration::from_secs(60);

/// The Service was deleted so many minutes ago.
fn delete(fixture: &Fixture, minutes: i64) {
    let requested = Timestamp::from_second(Timestamp::now().as_second() - 60 * minutes).unwrap();
    fixture.change(|service| service.metadata.deletion_timestamp = Some(Time(requested)));
}

fn deny(fixture: &Fixture, action: &'static str) {
    let words = "You are not authorized to perform this operation.";
    fixture
        .aws
        .fail_always(action, AwsError::answered(action, "UnauthorizedOperation", words));
}

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

/// Passes with a minute between two, and whether the Service was released in one of them.
async fn is_released(fixture: &Fixture, passes: usize) -> bool {
    for _ in 0..passes {
        if fixture.service().metadata.finalizers.unwrap().is_empty() {
            return true;
        }
        let _ = fixture.sync().await;
        tokio::time::advance(MINUTE).await;
    }
    fixture.service().metadata.finalizers.unwrap().is_empty()
}

fn incomplete(fixture: &Fixture) -> Vec<String> {
    let mut events = fixture.events();
    events.retain(|event| event.contains("DeleteLoadBalancerIncomplete"));
    events
}

#[tokio::test(start_paused = true)]
async fn a_denied_deletion_ends_half_an_hour_after_the_request() {
    let fixture = settled().await;
    deny(&fixture, REVOKE);
    delete(&fixture, 0);
    assert!(!is_released(&fixture, 20).await, "it is tried for half an hour");
    assert!(!fixture.aws.world().load_balancers.contains_key(LB));
    assert!(incomplete(&fixture).is_empty());

    delete(&fixture, 31);
    assert!(is_released(&fixture, 1).await, "{:?}", fixture.events());
    let told = incomplete(&fixture);
    assert_eq!(told.len(), 1, "{:?}", fixture.events());
    let what = format!("{REVOKE} sg-node, DeleteSecurityGroup sg-new1");
    assert!(told[0].starts_with("Warning") && told[0].contains(&what), "{told:?}");
    assert!(told[0].contains("UnauthorizedOperation"), "{told:?}");
    assert!(
        !fixture
            .events()
            .iter()
            .any(|event| event.contains("DeletedLoadBalancer"))
    );
    assert!(fixture.aws.world().security_groups.contains_key("sg-new1"));
}

/// AWS holds the group of a load balancer that was deleted just now, whenever the deletion was requested.
#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_the_network_interfaces() {
    let mut fixture = settled().await;
    fixture.aws.change(|world| {
        world.lingering.insert("sg-new1".into(), 4);
    });
    delete(&fixture, 120);
    fixture.restart();
    assert!(is_released(&fixture, 6).await);
    assert!(incomplete(&fixture).is_empty(), "{:?}", fixture.events());
    assert!(!fixture.aws.world().security_groups.contains_key("sg-new1"));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_others_use_holds_the_service_half_an_hour() {
    let mut fixture = settled().await;
    fixture.aws.change(|world| {
        world.lingering.insert("sg-new1".into(), 1000);
    });
    delete(&fixture, 31);
    fixture.restart();
    assert!(!is_released(&fixture, 10).await);
    assert!(is_released(&fixture, 3).await);
    assert!(incomplete(&fixture)[0].contains("DeleteSecurityGroup sg-new1"));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_aws_does_not_delete_holds_the_service() {
    let fixture = settled().await;
    deny(&fixture, "DeleteLoadBalancer");
    delete(&fixture, 1000);
    assert!(!is_released(&fixture, 100).await);
    fixture.aws.allow("DeleteLoadBalancer");
    assert!(is_released(&fixture, 1).await);
    assert!(fixture.aws.world().load_balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_denial_of_one_rule_keeps_nothing_else_from_being_deleted() {
    let fixture = network::settle(network::managed()).await;
    delete(&fixture, 0);
    let denied = AwsError::answered(REVOKE, "UnauthorizedOperation", "no");
    fixture.aws.fail_next(REVOKE, denied);
    assert!(matches!(fixture.sync().await, Err(Error::Aws(_))));
    let expected = [
        "DeleteLoadBalancer/v2",
        "DeleteTargetGroup",
        "DeleteTargetGroup",
        REVOKE,
        "DeleteSecurityGroup",
    ];
    assert_eq!(network::actions(&fixture), expected);
    assert_eq!(fixture.service().metadata.finalizers.unwrap(), [FINALIZER]);
    fixture.aws.forget_calls();
    fixture.sync().await.unwrap();
    assert_eq!(network::actions(&fixture), [REVOKE]);
    assert!(network::deletion::is_clean(fixture.aws.world()));
}
