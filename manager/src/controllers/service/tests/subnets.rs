//! Subnets of load balancers that exist, in a VPC with public and private ones.

use std::collections::BTreeSet;
use std::time::Duration;

use outrigger_aws::ec2::RouteTable;
use outrigger_aws::fake::World;

use super::super::queue::service_state::SUBNET_CONFIRMATION;
use super::fixture::{Fixture, LB, world};
use super::network;

const RESYNC: Duration = Duration::from_secs(1980);

/// In both zones a public subnet and a private one, each with the tag of its role.
fn public_and_private(mut world: World) -> World {
    for subnet in &mut world.subnets {
        subnet.tags.insert("kubernetes.io/role/elb".into(), "1".into());
    }
    for at in 0..world.subnets.len() {
        let mut private = world.subnets[at].clone();
        private.id = private.id.replace("subnet-", "subnet-private-");
        private.cidr_block = Some(format!("10.0.1{at}.0/24"));
        private.tags.remove("kubernetes.io/role/elb");
        private
            .tags
            .insert("kubernetes.io/role/internal-elb".into(), "1".into());
        make_private(&mut world, &private.id);
        world.subnets.push(private);
    }
    world
}

/// A route table without a gateway for a subnet.
fn make_private(world: &mut World, subnet: &str) {
    let table = RouteTable {
        id: format!("rtb-{subnet}"),
        subnet_ids: [subnet.to_owned()].into_iter().collect(),
        ..RouteTable::default()
    };
    world.route_tables.get_mut("vpc-1").unwrap().push(table);
}

fn attached(fixture: &Fixture) -> BTreeSet<String> {
    fixture.aws.world().load_balancers[LB].described.subnets.clone()
}

fn told(fixture: &Fixture) -> usize {
    let events = fixture.events();
    events.iter().filter(|event| event.contains("SchemeNotChanged")).count()
}

/// The first pass after a change, and those for the time of two searches for drift.
async fn pass_time(fixture: &Fixture) {
    for pause in [SUBNET_CONFIRMATION, SUBNET_CONFIRMATION, RESYNC, RESYNC] {
        fixture.settle().await;
        tokio::time::advance(pause).await;
    }
    fixture.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_internet_facing_load_balancer_stays_in_public_subnets() {
    let mut fixture = Fixture::new(public_and_private(world()));
    fixture.settle().await;
    let before = attached(&fixture);
    assert_eq!(before, ["subnet-a".to_owned(), "subnet-b".to_owned()].into());
    fixture.aws.forget_calls();
    fixture.annotate("internal", "true");
    pass_time(&fixture).await;
    assert_eq!(attached(&fixture), before);
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    assert_eq!(told(&fixture), 1, "{:?}", fixture.events());
    fixture.restart();
    pass_time(&fixture).await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_internal_load_balancer_stays_in_private_subnets() {
    let fixture = Fixture::new(public_and_private(world()));
    fixture.annotate("internal", "true");
    fixture.settle().await;
    let before = attached(&fixture);
    assert!(before.iter().all(|subnet| subnet.contains("private")), "{before:?}");
    fixture.annotate("internal", "false");
    pass_time(&fixture).await;
    assert_eq!(attached(&fixture), before);
    assert_eq!(told(&fixture), 1, "{:?}", fixture.events());
}

/// Without a public subnet an internet-facing load balancer could not be made, but this one is there.
#[tokio::test(start_paused = true)]
async fn an_internal_network_load_balancer_needs_no_public_subnet() {
    let fixture = network::fixture();
    fixture
        .aws
        .change(|world| world.route_tables.get_mut("vpc-1").unwrap()[0].gateway_ids.clear());
    fixture.annotate("internal", "true");
    fixture.settle().await;
    fixture.annotate("internal", "false");
    fixture.sync().await.unwrap();
    assert_eq!(told(&fixture), 1, "{:?}", fixture.events());
}

#[tokio::test(start_paused = true)]
async fn a_route_table_that_is_being_replaced_costs_no_subnet() {
    let mut fixture = Fixture::new(public_and_private(world()));
    fixture.settle().await;
    fixture.aws.forget_calls();
    let tables = fixture.aws.world().route_tables;
    fixture.aws.change(|world| make_private(world, "subnet-b"));
    fixture.restart();
    fixture.sync().await.unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    fixture.sync().await.unwrap();
    fixture.aws.change(|world| world.route_tables = tables);
    pass_time(&fixture).await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    assert_eq!(attached(&fixture).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_subnet_that_stays_private_is_detached() {
    let mut fixture = Fixture::new(public_and_private(world()));
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.aws.change(|world| make_private(world, "subnet-b"));
    fixture.restart();
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    tokio::time::advance(SUBNET_CONFIRMATION).await;
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [format!("DetachLoadBalancerFromSubnets {LB} subnet-b")]
    );
}
