//! The reads of observations after changes of Nodes, and the reads that they leave to others.

use std::time::Duration;

use tokio::time::advance;

use super::super::inventory::shared::MAX_AGE;
use super::fixture::LB;
use super::reads::{counts, restarted, settled};

#[tokio::test(start_paused = true)]
async fn a_new_node_costs_reads_of_the_load_balancer_and_one_write() {
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
async fn after_a_change_of_nodes_load_balancers_are_described_in_batches_of_twenty() {
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
