//! Services that are gone without having been let go.

use std::time::Duration;

use super::super::vanished::Missing;
use super::fixture::{Fixture, LB, UID, world};

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

#[tokio::test(start_paused = true)]
async fn what_a_vanished_service_had_goes_after_a_second_search() {
    let fixture = settled().await;
    let mut missing = Missing::default();
    fixture.reconciler.delete_vanished(&mut missing, |_, _| true).await;
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "one search is no proof");
    fixture
        .reconciler
        .delete_vanished(&mut missing, |name, uid| name != "default/web" && uid != UID)
        .await;
    let world = fixture.aws.world();
    assert!(world.load_balancers.is_empty() && world.security_groups.len() == 1);
    assert!(fixture.events().last().unwrap().contains("DeletedLoadBalancer"));
    fixture.aws.forget_calls();
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_told_and_tried_again_after_a_pause() {
    let fixture = settled().await;
    let mut missing = Missing::default();
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    let denied = outrigger_aws::Error::answered("DeleteLoadBalancer", "AccessDenied", "no");
    fixture.aws.fail_next("DeleteLoadBalancer", denied);
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    let told = fixture.events().last().unwrap().clone();
    assert!(
        told.starts_with("Warning DeleteLoadBalancerFailed Error deleting load balancer: "),
        "{told}"
    );
    fixture.aws.forget_calls();
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "not at once");
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.reconciler.delete_vanished(&mut missing, |_, _| false).await;
    assert!(fixture.aws.world().load_balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_service_of_the_same_name_has_the_old_ones_load_balancer_deleted_first() {
    let fixture = settled().await;
    fixture.change(|service| {
        service.metadata.uid = Some("99999999-1234-1234-1234-123456789abc".into());
        service.metadata.finalizers = None;
        service.status = None;
    });
    fixture.settle().await;
    let writes = fixture.aws.writes();
    let at = |action: &str| writes.iter().position(|write| write.starts_with(action)).unwrap();
    assert_eq!(writes[0], format!("DeleteLoadBalancer {LB}"));
    assert!(
        at("DeleteSecurityGroup sg-new1") < at("CreateLoadBalancer"),
        "{writes:?}"
    );
    assert_eq!(fixture.aws.world().load_balancers.len(), 1);
}

/// It may be another controller's, or none of type LoadBalancer.
#[tokio::test(start_paused = true)]
async fn what_a_service_had_goes_when_another_one_of_its_name_wants_nothing_here() {
    let fixture = settled().await;
    fixture.change(|service| service.metadata.uid = Some("99999999-1234-1234-1234-123456789abc".into()));
    fixture.annotate("type", "external");
    fixture.sync().await.unwrap();
    let mut missing = Missing::default();
    for _ in 0..2 {
        let exists = |_: &str, uid: &str| uid != UID;
        fixture.reconciler.delete_vanished(&mut missing, exists).await;
    }
    assert!(fixture.aws.world().load_balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_lost_its_finalizer_and_its_wish_at_once_leaves_nothing_behind() {
    let fixture = settled().await;
    fixture.change(|service| {
        service.metadata.finalizers = None;
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    fixture.sync().await.unwrap();
    assert!(fixture.aws.world().load_balancers.is_empty());
}

/// It has been another type between, which nobody has seen.
#[tokio::test(start_paused = true)]
async fn a_service_that_has_got_a_class_is_let_go_with_its_load_balancer() {
    let fixture = settled().await;
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into()));
    fixture.sync().await.unwrap();
    assert!(fixture.aws.world().load_balancers.is_empty());
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
    fixture.change(|service| service.metadata.finalizers = Some(vec![super::super::names::FINALIZER.into()]));
    fixture.sync().await.unwrap();
    let finalizers = fixture.service().metadata.finalizers.unwrap();
    assert_eq!(finalizers.len(), 1, "it may be the other controller's");
}
