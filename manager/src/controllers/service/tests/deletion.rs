//! Deleting load balancers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Error as AwsError;
use outrigger_aws::fake::World;
use serde_json::json;

use super::super::error::Error;
use super::super::spec::names::FINALIZER;
use super::fixture::{Fixture, LB, world};

fn delete(service: &mut Service) {
    service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
}

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

fn empty(world: World) -> World {
    World {
        groups_made: 0,
        lingering: Default::default(),
        ..world
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_leaves_nothing_and_loses_its_finalizer_last() {
    let fixture = settled().await;
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [
            format!("DeleteLoadBalancer {LB}"),
            "RevokeSecurityGroupIngress sg-node -1/<-sg-new1".into(),
            "DeleteSecurityGroup sg-new1".into(),
        ]
    );
    assert_eq!(empty(fixture.aws.world()), world());
    assert_eq!(
        fixture.api.patches.lock().unwrap().last(),
        Some(&"remove the finalizer")
    );
    assert!(
        fixture
            .events()
            .last()
            .unwrap()
            .starts_with("Normal DeletedLoadBalancer")
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_no_load_balancer_any_more_loses_it_and_its_address() {
    let fixture = settled().await;
    fixture.change(|service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into()));
    fixture.sync().await.unwrap();
    assert_eq!(empty(fixture.aws.world()), world());
    let service = fixture.service();
    assert!(service.status.unwrap().load_balancer.unwrap().ingress.is_none());
    assert!(service.metadata.finalizers.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_still_in_use_is_tried_again_and_holds_the_service() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        world.lingering.insert("sg-new1".into(), 2);
    });
    fixture.change(delete);
    for attempt in 1..=2 {
        let error = fixture.sync().await.unwrap_err();
        assert!(matches!(error, Error::GroupInUse { .. }), "{error}");
        assert_eq!(
            super::super::reconcile::retry_after(&fixture.context, &fixture.service()),
            Duration::from_secs(5 * attempt)
        );
        assert_eq!(fixture.service().metadata.finalizers.unwrap(), [FINALIZER]);
    }
    fixture.sync().await.unwrap();
    assert_eq!(empty(fixture.aws.world()), world());
    let deleting = fixture
        .events()
        .iter()
        .filter(|event| event.contains("DeletingLoadBalancer"))
        .count();
    assert_eq!(deleting, 1, "told once");
    assert!(
        !fixture
            .events()
            .iter()
            .any(|event| event.contains("SyncLoadBalancerFailed"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_absence() {
    let fixture = settled().await;
    fixture.change(delete);
    for (action, code) in [
        ("DescribeLoadBalancers", "AccessDenied"),
        ("DescribeSecurityGroups", "RequestLimitExceeded"),
        ("DeleteLoadBalancer", "InternalFailure"),
    ] {
        fixture.aws.fail_next(action, AwsError::answered(action, code, "no"));
        assert!(fixture.sync().await.is_err(), "{action}");
        assert_eq!(fixture.service().metadata.finalizers.unwrap(), [FINALIZER], "{action}");
        let read = action.starts_with("Describe");
        assert_eq!(
            fixture.aws.writes().is_empty(),
            read,
            "{action}: who does not know, does nothing"
        );
    }
    fixture.sync().await.unwrap();
    assert_eq!(empty(fixture.aws.world()), world());
}

#[tokio::test(start_paused = true)]
async fn a_service_with_a_class_keeps_a_finalizer_that_is_not_about_us() {
    let fixture = Fixture::new(world());
    fixture.change(|service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/lb".into());
        service.metadata.finalizers = Some(vec![FINALIZER.into()]);
        delete(service);
    });
    fixture.sync().await.unwrap();
    assert_eq!(fixture.service().metadata.finalizers.unwrap(), [FINALIZER]);
    assert!(fixture.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_is_deleted_even_if_the_annotation_is_network() {
    let fixture = settled().await;
    fixture.annotate("type", "nlb");
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(empty(fixture.aws.world()), world());
}

/// The tags of another cluster, of which this one is a copy: the UIDs of the Services are the same, and so are the
/// names.
fn of_another(tags: &mut outrigger_aws::Tags) {
    tags.remove("kubernetes.io/cluster/prod");
    tags.insert("kubernetes.io/cluster/original".into(), "owned".into());
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_cluster_does_not_delete_what_is_the_originals() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        of_another(&mut world.load_balancers.get_mut(LB).unwrap().tags);
        of_another(&mut world.security_groups.get_mut("sg-new1").unwrap().tags);
    });
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), [""; 0]);
    assert!(
        fixture.service().metadata.finalizers.unwrap().is_empty(),
        "the Service goes"
    );
}

#[tokio::test(start_paused = true)]
async fn without_readable_tags_resources_are_deleted_by_name() {
    let fixture = settled().await;
    let denied = AwsError::answered("DescribeTags", "AccessDenied", "no");
    fixture.aws.fail_next("DescribeTags", denied);
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(empty(fixture.aws.world()), world());
}

#[tokio::test(start_paused = true)]
async fn where_tags_cannot_be_read_for_now_a_deletion_waits() {
    let fixture = settled().await;
    fixture
        .aws
        .fail_next("DescribeTags", AwsError::unanswered("DescribeTags", "timeout"));
    fixture.change(delete);
    assert!(fixture.sync().await.is_err());
    assert_eq!(fixture.aws.writes(), [""; 0]);
}
