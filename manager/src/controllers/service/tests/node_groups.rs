//! The rules by which the nodes' groups let in a classic load balancer: they come before the targets and go after them.

use std::time::Duration;

use outrigger_aws::InstanceId;

use super::super::queue::service_state::CONFIRMATION;
use super::fixture::{Fixture, LB, world};

/// A load balancer with one target in each of two groups. The second one's Node is gone, and that was seen long enough.
async fn second_target_gone(also: impl FnOnce(&Fixture)) -> Fixture {
    let mut world = world();
    let mut other = world.security_groups["sg-node"].clone();
    (other.id, other.name) = ("sg-other".into(), Some("other".into()));
    world.security_groups.insert("sg-other".into(), other);
    let second = world.instances.get_mut(&InstanceId::new("i-2")).unwrap();
    second.security_groups = vec!["sg-other".into()];
    let fixture = Fixture::new(world);
    fixture.settle().await;
    also(&fixture);
    tokio::time::advance(Duration::from_secs(3600)).await;
    fixture.aws.forget_calls();
    fixture.drop_node("i-2");
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new(), "half of the targets wait");
    tokio::time::advance(CONFIRMATION).await;
    fixture.sync().await.unwrap();
    fixture
}

#[tokio::test(start_paused = true)]
async fn the_rule_of_a_group_is_revoked_after_its_last_target() {
    let fixture = second_target_gone(|_| {}).await;
    let writes = [
        format!("DeregisterInstancesFromLoadBalancer {LB} i-2"),
        "RevokeSecurityGroupIngress sg-other -1/<-sg-new1".into(),
    ];
    assert_eq!(fixture.aws.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn no_rule_is_revoked_while_the_groups_of_a_target_are_unknown() {
    let unlisted = |fixture: &Fixture| {
        fixture
            .aws
            .change(|world| _ = world.instances.remove(&InstanceId::new("i-1")));
    };
    let fixture = second_target_gone(unlisted).await;
    let writes = [format!("DeregisterInstancesFromLoadBalancer {LB} i-2")];
    assert_eq!(fixture.aws.writes(), writes);
}
