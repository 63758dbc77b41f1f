//! Deleting network load balancers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Error as AwsError;
use serde_json::json;

use super::super::super::error::Error;
use super::super::super::spec::names::FINALIZER;
use super::super::fixture::Fixture;
use super::*;

pub fn delete(service: &mut Service) {
    service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
}

pub fn is_clean(world: World) -> bool {
    let after = World {
        groups_made: 0,
        ..essence(world)
    };
    after == essence(network_world())
}

fn finalizers(fixture: &Fixture) -> Vec<String> {
    fixture.service().metadata.finalizers.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_leaves_nothing_and_loses_its_finalizer_last() {
    let fixture = settle(managed()).await;
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(
        actions(&fixture),
        [
            "DeleteLoadBalancer/v2",
            "DeleteTargetGroup",
            "DeleteTargetGroup",
            "RevokeSecurityGroupIngress",
            "DeleteSecurityGroup",
        ]
    );
    assert!(is_clean(fixture.aws.world()));
    assert!(finalizers(&fixture).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resource_in_use_is_retried_and_keeps_the_finalizer() {
    let fixture = settle(managed()).await;
    let group = behind(&fixture.aws.world(), 80).described.arn;
    fixture.aws.change(|world| {
        world.lingering.insert(group, 1);
        world.lingering.insert("sg-new1".into(), 2);
    });
    fixture.change(delete);
    let error = fixture.sync().await.unwrap_err();
    assert!(matches!(error, Error::TargetGroupInUse { .. }), "{error}");
    assert_eq!(
        super::super::super::reconcile::retry_after(&fixture.context, &fixture.service()),
        Duration::from_secs(5)
    );
    assert_eq!(finalizers(&fixture), [FINALIZER]);
    assert!(matches!(fixture.sync().await.unwrap_err(), Error::GroupInUse { .. }));
    fixture.sync().await.unwrap();
    assert!(is_clean(fixture.aws.world()));
}

#[tokio::test(start_paused = true)]
async fn both_kinds_are_deleted_whatever_the_annotation() {
    let fixture = settle(managed()).await;
    fixture.annotate("type", "clb");
    fixture.change(delete);
    fixture.aws.die_at_write(1);
    assert!(fixture.sync().await.is_err());
    fixture.aws.revive();
    fixture.settle().await;
    assert!(is_clean(fixture.aws.world()));
    assert!(finalizers(&fixture).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_absence() {
    let fixture = settled().await;
    fixture.change(delete);
    for (action, code) in [
        ("DescribeLoadBalancers/v2", "AccessDenied"),
        ("DescribeTargetGroups", "Throttling"),
        ("DescribeSecurityGroups", "RequestLimitExceeded"),
        ("DeleteLoadBalancer/v2", "OperationNotPermitted"),
        ("DeleteTargetGroup", "InternalFailure"),
    ] {
        fixture.aws.fail_next(action, AwsError::answered(action, code, "no"));
        assert!(fixture.sync().await.is_err(), "{action}");
        assert_eq!(finalizers(&fixture), [FINALIZER], "{action}");
    }
    fixture.sync().await.unwrap();
    assert!(is_clean(fixture.aws.world()));
}

#[tokio::test(start_paused = true)]
async fn target_groups_of_others_stay() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let mut other = behind(world, 80);
        let prefix = other.described.name[..16].to_owned();
        other.described.name = format!("{prefix}other");
        other.described.arn = other.described.arn.replace("targetgroup/", "targetgroup/o");
        other
            .tags
            .insert("kubernetes.io/service-name".into(), "default/website".into());
        world.network.target_groups.insert(other.described.arn.clone(), other);
    });
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(fixture.aws.world().network.target_groups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn target_groups_of_an_earlier_process_are_found_after_a_start() {
    let mut fixture = settled().await;
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(31080));
    let writes = [
        "AuthorizeSecurityGroupIngress",
        "CreateTargetGroup",
        "RegisterTargets",
        "ModifyListener",
    ];
    fixture.aws.die_at_write(writes.len());
    assert!(fixture.sync().await.is_err());
    assert_eq!(actions(&fixture), writes);
    fixture.restart();
    fixture.settle().await;
    assert_eq!(fixture.aws.world().network.target_groups.len(), 2);
}

/// For a while AWS lists a deleted load balancer as a user of its target groups, and does not delete them.
#[tokio::test(start_paused = true)]
async fn target_groups_whose_user_is_gone_are_waited_for() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let arn = balancer(world).described.arn.clone();
        let groups = world.network.target_groups.keys().cloned();
        let named = groups.map(|group| (group, [arn.clone()].into()));
        world.network.still_named = named.collect();
    });
    fixture.change(delete);
    for _ in 0..3 {
        let error = fixture.sync().await.unwrap_err();
        assert!(matches!(error, Error::TargetGroupInUse { .. }), "{error}");
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    }
    assert_eq!(fixture.service().metadata.finalizers.unwrap().len(), 1);
    fixture.aws.change(|world| world.network.still_named.clear());
    fixture.settle().await;
    assert!(fixture.aws.world().network.target_groups.is_empty());
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_cluster_does_not_delete_what_is_the_originals() {
    let fixture = settle(managed()).await;
    let of_another = |tags: &mut outrigger_aws::Tags| {
        tags.remove("kubernetes.io/cluster/prod");
        tags.insert("kubernetes.io/cluster/original".into(), "owned".into());
    };
    fixture.aws.change(|world| {
        world
            .network
            .load_balancers
            .values_mut()
            .for_each(|lb| of_another(&mut lb.tags));
        world
            .network
            .target_groups
            .values_mut()
            .for_each(|group| of_another(&mut group.tags));
        world
            .security_groups
            .values_mut()
            .for_each(|group| of_another(&mut group.tags));
    });
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(actions(&fixture), Vec::<String>::new());
    assert!(finalizers(&fixture).is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_readable_tags_resources_are_deleted_by_name() {
    let fixture = settle(managed()).await;
    let denied = AwsError::answered("DescribeTags", "AccessDenied", "no");
    fixture.aws.fail_next("DescribeTags/v2", denied);
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert!(is_clean(fixture.aws.world()));
}
