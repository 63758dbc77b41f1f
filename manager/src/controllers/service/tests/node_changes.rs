//! The reads of observations after changes of Nodes, and the reads that they leave to others.

use std::time::Duration;

use tokio::time::advance;

use super::super::inventory::shared::MAX_AGE;
use super::fixture::{Fixture, LB};
use super::network;
use super::reads::{counts, restarted, settled};

#[tokio::test(start_paused = true)]
async fn a_new_node_costs_a_read_of_its_instance_and_one_write_for_each_list_of_targets() {
    let fixture = remembered().await;
    counts(&fixture);
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    let calls = [("DescribeInstances", 1), ("RegisterInstancesWithLoadBalancer", 1)];
    assert_eq!(counts(&fixture), calls.into());

    let fixture = network::fixture();
    fixture.settle().await;
    fixture.annotate("beat", "1");
    fixture.sync().await.unwrap();
    counts(&fixture);
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(
        counts(&fixture),
        [("DescribeInstances", 1), ("RegisterTargets", 2)].into()
    );
}

/// A settled Service whose load balancer is in memory.
async fn remembered() -> Fixture {
    let fixture = settled().await;
    fixture.annotate("beat", "1");
    fixture.sync().await.unwrap();
    fixture
}

/// The write from memory fails, and everything is read.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_gone_when_a_node_joins_is_created_again() {
    let fixture = remembered().await;
    fixture.aws.change(|world| _ = world.load_balancers.remove(LB));
    fixture.node("i-3", true);
    fixture.sync().await.unwrap_err();
    fixture.sync().await.unwrap();
    let targets = fixture.aws.world().load_balancers[LB].described.instances.len();
    assert_eq!(targets, 3);
}

/// Somebody deregisters a target by hand: as without a change of Nodes, the drift repair finds that.
#[tokio::test(start_paused = true)]
async fn what_others_change_is_found_by_the_drift_repair_although_nodes_change() {
    let fixture = remembered().await;
    let targets = || fixture.aws.world().load_balancers[LB].described.instances.len();
    fixture.aws.change(|world| {
        let instances = &mut world.load_balancers.get_mut(LB).unwrap().described.instances;
        instances.retain(|id| id.as_str() != "i-1");
    });
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(targets(), 2);
    advance(Duration::from_secs(1980)).await;
    fixture.sync().await.unwrap();
    assert_eq!(targets(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_nodes_costs_no_read_of_any_load_balancer() {
    let (fixture, services) = restarted(45).await;
    // The second time for the attributes.
    for _ in 0..2 {
        for service in &services {
            super::super::reconcile::reconcile(&fixture.context, service)
                .await
                .unwrap();
        }
        advance(MAX_AGE).await;
    }
    counts(&fixture);
    fixture.node("i-3", true);
    fixture.context.aws.shared.many_wait();
    for service in &services {
        super::super::reconcile::reconcile(&fixture.context, service)
            .await
            .unwrap();
    }
    let calls = [
        ("DescribeInstances", 1),
        ("DescribeRouteTables", 1),
        ("DescribeSecurityGroups", 3),
        ("DescribeSubnets", 1),
        ("RegisterInstancesWithLoadBalancer", 45),
    ];
    assert_eq!(counts(&fixture), calls.into());
}

#[tokio::test(start_paused = true)]
async fn an_update_of_targets_that_finds_drift_observes_everything() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let balancer = world.load_balancers.get_mut(LB).unwrap();
        balancer.attributes.idle_timeout = Some(61);
        world.security_groups.get_mut("sg-new1").unwrap().ingress.clear();
    });
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    let counts = counts(&fixture);
    assert_eq!(counts["DescribeLoadBalancerAttributes"], 1);
    assert_eq!(counts["AuthorizeSecurityGroupIngress"], 1);
    assert_eq!(counts["RegisterInstancesWithLoadBalancer"], 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_nodes_do_not_delay_the_resync() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let balancer = world.load_balancers.get_mut(LB).unwrap();
        balancer.attributes.idle_timeout = Some(61);
    });
    let mut repaired = Vec::new();
    for turn in 0..6 {
        match turn % 2 {
            0 => fixture.node("i-3", true),
            _ => fixture.drop_node("i-3"),
        }
        fixture.sync().await.unwrap();
        repaired.push(counts(&fixture).contains_key("ModifyLoadBalancerAttributes"));
        advance(Duration::from_secs(600)).await;
    }
    // The period is 30 minutes, give or take three.
    let first = repaired.iter().position(|repaired| *repaired);
    assert!(matches!(first, Some(3 | 4)), "{repaired:?}");
    assert_eq!(repaired.iter().filter(|repaired| **repaired).count(), 1);
}
