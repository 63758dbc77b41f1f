//! Services that are gone although their finalizer was not removed by the controller.

use std::time::Duration;

use super::super::orphans::MissingServices;
use super::super::queue::service_state::ServiceStates;
use super::fixture::{Answer, Fixture, LB, UID, world};
use super::network::deletion::delete;

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

#[tokio::test(start_paused = true)]
async fn resources_of_a_missing_service_are_deleted_after_a_second_search() {
    let fixture = settled().await;
    fixture.lose_service();
    let mut missing = MissingServices::default();
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| true).await;
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "one search is no proof");
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |name, uid| {
        name != "default/web" && uid != UID
    })
    .await;
    let world = fixture.aws.world();
    assert!(world.load_balancers.is_empty() && world.security_groups.len() == 1);
    assert!(fixture.events().last().unwrap().contains("DeletedLoadBalancer"));
    fixture.aws.forget_calls();
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_reported_and_retried_with_backoff() {
    let fixture = settled().await;
    fixture.lose_service();
    let mut missing = MissingServices::default();
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    let denied = outrigger_aws::Error::answered("DeleteLoadBalancer", "AccessDenied", "no");
    fixture.aws.fail_next("DeleteLoadBalancer", denied);
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    let told = fixture.events().last().unwrap().clone();
    assert!(
        told.starts_with("Warning DeleteLoadBalancerFailed Error deleting load balancer: "),
        "{told}"
    );
    fixture.aws.forget_calls();
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    assert!(fixture.aws.calls().is_empty(), "not at once");
    tokio::time::advance(Duration::from_secs(5)).await;
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
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
async fn resources_are_deleted_if_a_new_service_of_the_name_is_unmanaged() {
    let fixture = settled().await;
    fixture.change(|service| service.metadata.uid = Some("99999999-1234-1234-1234-123456789abc".into()));
    fixture.annotate("type", "external");
    fixture.sync().await.unwrap();
    let mut missing = MissingServices::default();
    for _ in 0..2 {
        let exists = |_: &str, uid: &str| uid != UID;
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, exists).await;
    }
    assert!(fixture.aws.world().load_balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_lost_finalizer_and_type_at_once_leaves_nothing() {
    let fixture = settled().await;
    fixture.change(|service| {
        service.metadata.finalizers = None;
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    fixture.sync().await.unwrap();
    let left = fixture.aws.world();
    assert!(left.load_balancers.is_empty());
    assert_eq!(left.security_groups, world().security_groups);
}

/// It has been another type between, which nobody has seen.
#[tokio::test(start_paused = true)]
async fn a_service_that_got_a_class_is_released_and_its_load_balancer_deleted() {
    let fixture = settled().await;
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into()));
    fixture.sync().await.unwrap();
    assert!(fixture.aws.world().load_balancers.is_empty());
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
    fixture.change(|service| service.metadata.finalizers = Some(vec![super::super::spec::names::FINALIZER.into()]));
    fixture.sync().await.unwrap();
    let finalizers = fixture.service().metadata.finalizers.unwrap();
    assert_eq!(finalizers.len(), 1, "it may be the other controller's");
}

/// The API server does not take the release: what was deleted by then is no reason to keep the finalizer.
#[tokio::test(start_paused = true)]
async fn a_service_with_a_class_is_released_by_a_later_reconciliation_too() {
    let class = |fixture: &Fixture| {
        fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into()));
    };
    for deleted in [false, true] {
        let fixture = settled().await;
        class(&fixture);
        if deleted {
            fixture.change(delete);
            // Nothing but what is remembered says whose the finalizer is.
            fixture.change(|service| service.status = None);
        }
        fixture.api.answers.lock().unwrap().push(Answer::Refused);
        assert!(fixture.sync().await.is_err());
        assert!(fixture.aws.world().load_balancers.is_empty());
        fixture.sync().await.unwrap();
        assert_eq!(
            fixture.service().metadata.finalizers,
            Some(Vec::new()),
            "deleted: {deleted}"
        );
    }
}

/// The process that deleted the load balancer died before the release.
#[tokio::test(start_paused = true)]
async fn a_service_with_a_class_and_our_address_is_released() {
    let mut fixture = settled().await;
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into()));
    fixture.change(delete);
    fixture.aws.change(|world| world.load_balancers.clear());
    fixture.restart();
    fixture
        .aws
        .change(|world| world.security_groups.retain(|id, _| id == "sg-node"));
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-node").unwrap().ingress.clear());
    fixture.sync().await.unwrap();
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_address_of_another_controller_stays() {
    let fixture = settled().await;
    fixture.change(|service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
        let status = serde_json::json!({"loadBalancer": {"ingress": [{"hostname": "other.example.com"}]}});
        service.status = Some(serde_json::from_value(status).unwrap());
    });
    fixture.sync().await.unwrap();
    let service = fixture.service();
    assert_eq!(service.metadata.finalizers, Some(Vec::new()));
    let address = service.status.unwrap().load_balancer.unwrap().ingress.unwrap()[0]
        .hostname
        .clone();
    assert_eq!(address.unwrap(), "other.example.com");
}

/// Only the pauses between its tries say how often a failure was counted.
#[tokio::test(start_paused = true)]
async fn a_failed_release_is_counted_once() {
    let fixture = settled().await;
    fixture
        .aws
        .change(|world| _ = world.lingering.insert("sg-new1".into(), 1));
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into()));
    let service = fixture.service();
    fixture.sync().await.unwrap_err();
    assert_eq!(
        super::super::reconcile::retry_after(&fixture.context, &service),
        Duration::from_secs(5)
    );
    assert!(
        !fixture.events().iter().any(|event| event.contains("Failed")),
        "AWS takes a while"
    );
    fixture.sync().await.unwrap();
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
}

fn with_others(states: &ServiceStates, number: usize) {
    for n in 0..number {
        let name = format!("other-{n}");
        let mut service = super::fixture::service();
        service.metadata.name = Some(name);
        service.metadata.uid = Some(format!("u{n}"));
        states.begin(&service);
    }
}

/// An API server that was restored from an old backup lacks the Services that were created since. Their resources are
/// kept, also when more Services are created or some of them return. A Service that is deleted later is another case.
#[tokio::test(start_paused = true)]
async fn a_mass_loss_of_services_deletes_nothing() {
    let fixture = settled().await;
    with_others(&fixture.context.states, 12);
    let lost = ["default/web", "default/other-0", "default/other-1", "default/other-2"];
    let mut missing = MissingServices::default();
    for _ in 0..3 {
        let exists = |name: &str, _: &str| !lost.contains(&name);
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, exists).await;
    }
    with_others(&fixture.context.states, 30);
    for _ in 0..2 {
        let exists = |name: &str, _: &str| !lost.contains(&name) || name == lost[3];
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, exists).await;
    }
    assert!(fixture.aws.calls().is_empty());
    assert_eq!(fixture.context.states.names().len(), 31);
    for _ in 0..2 {
        let exists = |name: &str, _: &str| !lost.contains(&name) && name != "default/other-7";
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, exists).await;
    }
    let names = fixture.context.states.names();
    let known = |name: &str| names.iter().any(|(known, _)| known == name);
    assert!(known("default/web") && !known("default/other-7"), "{names:?}");
    assert_eq!(fixture.aws.world().load_balancers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_returns_before_the_deletion_loses_nothing() {
    let fixture = settled().await;
    let mut missing = MissingServices::default();
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    let asked = std::cell::Cell::new(0);
    let exists = |_: &str, _: &str| {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    super::super::orphans::delete_orphaned(&fixture.context, &mut missing, exists).await;
    assert_eq!(asked.get(), 2);
    assert!(fixture.aws.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_for_a_service_that_is_gone_before_it_has_the_finalizer() {
    let fixture = Fixture::new(world());
    fixture.api.answers.lock().unwrap().push(Answer::Gone);
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

/// It goes while its load balancer is made, and is searched for, found missing and forgotten just then.
#[tokio::test(start_paused = true)]
async fn resources_created_for_a_service_that_is_deleted_meanwhile_are_found() {
    let fixture = Fixture::new(world());
    // The finalizer is added; the address finds nobody.
    fixture.change(|service| service.metadata.finalizers = Some(vec![super::super::spec::names::FINALIZER.into()]));
    fixture.api.answers.lock().unwrap().push(Answer::Gone);
    let forgotten = async { fixture.context.states.forget(UID) };
    tokio::join!(fixture.sync(), forgotten).0.unwrap();
    assert_eq!(fixture.aws.world().load_balancers.len(), 1);
    fixture.lose_service();
    let mut missing = MissingServices::default();
    for _ in 0..2 {
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    }
    assert!(fixture.aws.world().load_balancers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn partly_created_resources_are_found_too() {
    let fixture = Fixture::new(world());
    fixture.api.answers.lock().unwrap().push(Answer::Slow);
    let denied = outrigger_aws::Error::answered("ConfigureHealthCheck", "AccessDenied", "no");
    fixture.aws.fail_next("ConfigureHealthCheck", denied);
    let forgotten = async { fixture.context.states.forget(UID) };
    tokio::join!(fixture.sync(), forgotten).0.unwrap_err();
    assert_eq!(fixture.aws.world().load_balancers.len(), 1);
    fixture.lose_service();
    let mut missing = MissingServices::default();
    for _ in 0..2 {
        super::super::orphans::delete_orphaned(&fixture.context, &mut missing, |_, _| false).await;
    }
    assert!(fixture.aws.world().load_balancers.is_empty());
}
