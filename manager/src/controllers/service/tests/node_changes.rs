//! What looks on behalf of Nodes cost, and what they leave to others.

use std::time::Duration;

use tokio::time::advance;

use super::super::inventory::freshness::MAX_AGE;
use super::fixture::LB;
use super::reads::{counts, restarted, settled};

#[tokio::test(start_paused = true)]
async fn nodes_that_join_cost_the_load_balancers_own_reads_and_one_write() {
    let fixture = settled().await;
    fixture.annotate("beat", "1");
    fixture.sync().await.unwrap();
    counts(&fixture);
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    let calls = [
        ("DescribeInstances", 1),
        ("DescribeLoadBalancers", 1),
        ("DescribeTags", 1),
        ("RegisterInstancesWithLoadBalancer", 1),
    ];
    assert_eq!(counts(&fixture), calls.into());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_many_load_balancers_has_them_described_twenty_at_a_time() {
    let (fixture, services) = restarted(45).await;
    for service in &services {
        super::super::reconcile::reconcile(&fixture.context, service)
            .await
            .unwrap();
    }
    advance(MAX_AGE).await;
    counts(&fixture);
    fixture.node("i-3", true);
    fixture.context.aws.shared.nodes_changed();
    for service in &services {
        super::super::reconcile::reconcile(&fixture.context, service)
            .await
            .unwrap();
    }
    let calls = [
        ("DescribeInstances", 1),
        ("DescribeLoadBalancers", 3),
        ("DescribeRouteTables", 1),
        ("DescribeSecurityGroups", 3),
        ("DescribeSubnets", 1),
        ("DescribeTags", 3),
        ("RegisterInstancesWithLoadBalancer", 45),
    ];
    assert_eq!(counts(&fixture), calls.into());
}

#[tokio::test(start_paused = true)]
async fn a_look_for_nodes_that_finds_more_to_do_looks_at_everything() {
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
async fn nodes_that_come_and_go_do_not_put_off_the_look_for_drift() {
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
