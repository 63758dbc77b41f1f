//! The number of reads of an observation; a stale answer never leads to a wrong write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::IpPermission;
use outrigger_aws::fake::World;
use serde_json::{Value, json};
use tokio::time::advance;

use super::super::action::Next;
use super::super::error::Error;
use super::super::inventory::shared::MAX_AGE;
use super::super::reconcile::reconcile;
use super::super::spec::annotations::PREFIX;
use super::super::spec::names;
use super::super::writer;
use super::super::writer::{Found, Writer};
use super::fixture::{Fixture, HOST, LB, exclude, service, world};
use crate::events::EventType;

/// An API server that takes everything.
struct Anything;

#[async_trait]
impl Writer for Anything {
    async fn patch(&self, _: &Service, _: &'static str, _: Value) -> Result<Found, Error> {
        Ok(Found::There)
    }

    async fn event(&self, _: &Service, _: EventType, _: &'static str, _: &str) {}
}

pub(super) async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    // Nothing that was told until now counts any more.
    advance(MAX_AGE).await;
    fixture.aws.forget_calls();
    fixture
}

/// How often each action was called since the log was emptied.
pub(super) fn counts(fixture: &Fixture) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for call in fixture.aws.calls() {
        *counts.entry(call.action).or_default() += 1;
    }
    fixture.aws.forget_calls();
    counts
}

fn numbered(number: usize) -> Service {
    let mut service = service();
    let uid = format!("{number:08}-1234-1234-1234-123456789abc");
    service.metadata.name = Some(format!("web-{number}"));
    service.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
    let host = HOST.replace(LB, &names::load_balancer(&uid));
    service.metadata.uid = Some(uid);
    service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"hostname": host}]}})).unwrap();
    assert!(writer::has_address(&service, &host));
    service
}

/// A cluster with the load balancers of so many Services, and a process that has just started.
pub(super) async fn restarted(count: usize) -> (Fixture, Vec<Service>) {
    restarted_with((0..count).map(numbered).collect()).await
}

async fn restarted_with(services: Vec<Service>) -> (Fixture, Vec<Service>) {
    let mut fixture = Fixture::new(world());
    fixture.context.writer = Arc::new(Anything);
    for service in &services {
        reconcile(&fixture.context, service).await.unwrap();
    }
    fixture.restart();
    fixture.context.writer = Arc::new(Anything);
    let all: Vec<Arc<Service>> = services.iter().cloned().map(Arc::new).collect();
    fixture.context.aws.shared.prefetch_for(move || all.clone());
    fixture.aws.forget_calls();
    (fixture, services)
}

#[tokio::test(start_paused = true)]
async fn a_changed_service_is_observed_again_with_eight_reads() {
    let fixture = settled().await;
    let reads = [
        ("DescribeLoadBalancerAttributes", 1),
        ("DescribeLoadBalancers", 1),
        ("DescribeRouteTables", 1),
        ("DescribeSecurityGroups", 3),
        ("DescribeSubnets", 1),
        ("DescribeTags", 1),
    ];
    for beat in ["1", "2"] {
        fixture.annotate("beat", beat);
        fixture.sync().await.unwrap();
        assert_eq!(counts(&fixture), reads.into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_service_is_observed_once() {
    let fixture = Fixture::new(world());
    fixture.sync().await.unwrap();
    let counts = counts(&fixture);
    assert_eq!(counts["DescribeSubnets"], 1);
    assert_eq!(counts["CreateLoadBalancer"], 1);
    assert_eq!(counts["DescribeLoadBalancers"], 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_start_many_services_share_their_reads_and_attributes_are_read_one_by_one() {
    let (fixture, services) = restarted(45).await;
    // Not in the order in which the names are sorted.
    let mut due = Vec::new();
    for service in services.iter().rev() {
        due.push(reconcile(&fixture.context, service).await.unwrap());
    }
    let reads = [
        ("DescribeAvailabilityZones", 1),
        ("DescribeInstances", 1),
        ("DescribeLoadBalancers", 3),
        ("DescribeRouteTables", 1),
        ("DescribeSecurityGroups", 3),
        ("DescribeSubnets", 1),
        ("DescribeTags", 3),
    ];
    assert_eq!(counts(&fixture), reads.into());
    // One each second; the first pass of all took a moment.
    for (number, next) in (1..=45).zip(due) {
        let Next::After(left) = next else {
            panic!("{next:?}");
        };
        assert_eq!(left.as_millis().div_ceil(1000), number, "{left:?}");
    }

    for service in services.iter().rev() {
        let rest = reconcile(&fixture.context, service).await.unwrap();
        assert!(
            matches!(rest, Next::After(left) if left <= Duration::from_secs(45)),
            "{rest:?}"
        );
        assert_eq!(counts(&fixture), BTreeMap::new(), "not yet");
        advance(Duration::from_secs(1)).await;
        let next = reconcile(&fixture.context, service).await.unwrap();
        assert!(
            matches!(next, Next::After(left) if left > Duration::from_secs(1500)),
            "{next:?}"
        );
        assert_eq!(
            counts(&fixture),
            BTreeMap::from([("DescribeLoadBalancerAttributes", 1)])
        );
    }
}

/// While no process ran, an attribute was changed, and a Node joined.
#[tokio::test(start_paused = true)]
async fn what_a_start_leaves_for_later_is_done_later_as_a_start() {
    let (fixture, mut services) = restarted(2).await;
    let changed = &mut services[1];
    let key = format!("{PREFIX}connection-idle-timeout");
    changed.metadata.annotations = Some(BTreeMap::from([(key, "120".to_owned())]));
    fixture.node("i-3", true);
    for service in &services {
        reconcile(&fixture.context, service).await.unwrap();
    }
    let registers = |write: &String| write.starts_with("RegisterInstancesWithLoadBalancer");
    assert_eq!(fixture.aws.writes().iter().filter(|write| registers(write)).count(), 2);
    assert_eq!(fixture.aws.writes().len(), 2, "{:?}", fixture.aws.writes());

    // A change of Nodes does not put it off.
    fixture.allow_gaps("a Node is excluded");
    advance(Duration::from_secs(1)).await;
    exclude(&fixture, "i-3");
    reconcile(&fixture.context, &services[1]).await.unwrap();
    assert_eq!(fixture.aws.writes().len(), 3, "{:?}", fixture.aws.writes());
    advance(Duration::from_secs(1)).await;
    fixture.node("i-3", true);
    reconcile(&fixture.context, &services[1]).await.unwrap();
    let writes = fixture.aws.writes();
    let modifies = |write: &&String| write.starts_with("ModifyLoadBalancerAttributes");
    assert_eq!(writes.iter().filter(modifies).count(), 1, "{writes:?}");
}

/// A batch that is used within a minute serves the write too: descriptions of Services that are far back in the queue
/// would be too old by then.
#[tokio::test(start_paused = true)]
async fn after_a_change_of_nodes_descriptions_are_read_in_the_order_of_the_queue() {
    // Not in the order in which the names are sorted.
    let (fixture, services) = restarted_with((0..60).rev().map(numbered).collect()).await;
    fixture.node("i-3", true);
    fixture.context.aws.shared.many_wait();
    for service in &services {
        reconcile(&fixture.context, service).await.unwrap();
        advance(Duration::from_secs(2)).await;
    }
    let counts = counts(&fixture);
    assert_eq!(counts["RegisterInstancesWithLoadBalancer"], 60);
    let read = (
        counts["DescribeLoadBalancers"],
        counts["DescribeTags"],
        counts.get("DescribeLoadBalancerAttributes"),
    );
    assert_eq!(read, (3, 3, None), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn network_load_balancers_too_are_described_many_at_a_time_after_a_start() {
    let network = |number| {
        let mut service = numbered(number);
        let key = format!("{PREFIX}type");
        service.metadata.annotations = Some(BTreeMap::from([(key, "nlb".to_owned())]));
        let address = json!({"ingress": [{"hostname": "web.elb.us-east-1.amazonaws.com"}]});
        service.status = serde_json::from_value(json!({"loadBalancer": address})).unwrap();
        service
    };
    for cluster_uid in [None, Some("u-1".to_owned())] {
        let (mut fixture, services) = restarted_with((0..25).map(network).collect()).await;
        fixture.context.aws.reads_owners = cluster_uid.is_some();
        fixture.context.settings.cluster_uid.clone_from(&cluster_uid);
        for service in services.iter().rev() {
            reconcile(&fixture.context, service).await.unwrap();
        }
        assert_eq!(fixture.aws.writes(), Vec::<String>::new());
        let mut reads = BTreeMap::from([
            ("DescribeAvailabilityZones", 1),
            ("DescribeInstances", 1),
            ("DescribeListeners", 25),
            ("DescribeLoadBalancers/v2", 2),
            ("DescribeRouteTables", 1),
            // The cluster's groups, and those of the VPC: rules may be left where no Node is any more.
            ("DescribeSecurityGroups", 2),
            ("DescribeSubnets", 1),
            ("DescribeTargetGroups", 1),
            ("DescribeTargetHealth", 50),
        ]);
        if cluster_uid.is_some() {
            reads.insert("DescribeTags/v2", 2);
        }
        assert_eq!(counts(&fixture), reads);

        // Whose they are is known from then on.
        fixture.node("i-3", true);
        advance(MAX_AGE).await;
        for service in &services {
            reconcile(&fixture.context, service).await.unwrap();
        }
        let counts = counts(&fixture);
        assert_eq!((counts["RegisterTargets"], counts.get("DescribeTags/v2")), (50, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefetched_load_balancer_is_described_again_before_a_write() {
    let (fixture, services) = restarted(3).await;
    let second = names::load_balancer(services[1].metadata.uid.as_deref().unwrap());
    let take = |world: &mut World| world.load_balancers.get_mut(&second).unwrap().described.listeners.pop();
    let mut taken = None;
    fixture.aws.change(|world| taken = take(world));
    reconcile(&fixture.context, &services[0]).await.unwrap();
    // Someone puts it back after it was described as missing.
    fixture.aws.change(|world| {
        let listeners = &mut world.load_balancers.get_mut(&second).unwrap().described.listeners;
        listeners.extend(taken.clone());
    });
    reconcile(&fixture.context, &services[1]).await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    // The other way round: what was described as there is gone. It was not seen, and is found by the next look.
    fixture.aws.change(|world| _ = take(world));
    let mut poked = services[1].clone();
    poked.metadata.annotations = Some(BTreeMap::from([("example.com/beat".to_owned(), "1".to_owned())]));
    reconcile(&fixture.context, &poked).await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [format!("CreateLoadBalancerListeners {second} 443")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_prefetched_load_balancer_that_is_gone_is_created_again() {
    let (fixture, services) = restarted(2).await;
    reconcile(&fixture.context, &services[0]).await.unwrap();
    let second = names::load_balancer(services[1].metadata.uid.as_deref().unwrap());
    fixture.aws.change(|world| _ = world.load_balancers.remove(&second));
    // A start does not observe it, and the read of its attributes does.
    reconcile(&fixture.context, &services[1]).await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    advance(Duration::from_secs(2)).await;
    reconcile(&fixture.context, &services[1]).await.unwrap();
    assert!(
        fixture.aws.writes().contains(&format!("CreateLoadBalancer {second}")),
        "{:?}",
        fixture.aws.writes()
    );
}

#[tokio::test(start_paused = true)]
async fn a_prefetched_load_balancer_is_forgotten_if_its_service_is_deleted_and_created_again() {
    // With a group of its own it would be seen that this is gone.
    let given = |number| {
        let mut service = numbered(number);
        let key = format!("{PREFIX}security-groups");
        service.metadata.annotations = Some(BTreeMap::from([(key, "sg-node".to_owned())]));
        service
    };
    let (fixture, services) = restarted_with(vec![given(0), given(1)]).await;
    reconcile(&fixture.context, &services[0]).await.unwrap();
    let mut other_type = services[1].clone();
    other_type.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    reconcile(&fixture.context, &other_type).await.unwrap();
    let second = names::load_balancer(services[1].metadata.uid.as_deref().unwrap());
    assert!(!fixture.aws.world().load_balancers.contains_key(&second));
    fixture.aws.forget_calls();
    reconcile(&fixture.context, &services[1]).await.unwrap();
    assert!(!counts(&fixture).contains_key("DescribeLoadBalancerAttributes"));
    assert!(fixture.aws.world().load_balancers.contains_key(&second));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_rule_is_found_at_once_after_a_change_and_a_minute_later_otherwise() {
    let fixture = settled().await;
    fixture.annotate("beat", "1");
    fixture.sync().await.unwrap();
    fixture.aws.forget_calls();
    let rules = |fixture: &Fixture| fixture.aws.world().security_groups["sg-new1"].ingress.len();
    let all = rules(&fixture);
    let take_one = |world: &mut World| _ = world.security_groups.get_mut("sg-new1").unwrap().ingress.pop();

    fixture.aws.change(take_one);
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(rules(&fixture), all - 1, "told a moment ago that all is well");
    fixture.annotate("beat", "2");
    fixture.sync().await.unwrap();
    assert_eq!(rules(&fixture), all);

    fixture.aws.change(take_one);
    advance(MAX_AGE).await;
    fixture.node("i-4", true);
    fixture.sync().await.unwrap();
    assert_eq!(rules(&fixture), all);
    let written: Vec<&str> = fixture
        .aws
        .calls()
        .iter()
        .map(|call| call.action)
        .filter(|action| !action.starts_with("Describe"))
        .collect();
    let (open, join) = ("AuthorizeSecurityGroupIngress", "RegisterInstancesWithLoadBalancer");
    assert_eq!(written, [join, open, open], "EC2 knows no i-4");
}

#[tokio::test(start_paused = true)]
async fn a_rule_put_back_by_hand_is_not_put_back_again() {
    let fixture = settled().await;
    fixture.annotate("beat", "1");
    let rules = fixture.aws.world().security_groups["sg-new1"].ingress.clone();
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-new1").unwrap().ingress.clear());
    let known = fixture.aws.world().security_groups["sg-node"].clone();
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes().len(), 1, "{:?}", fixture.aws.writes());
    assert_eq!(fixture.aws.world().security_groups["sg-node"], known);
    let ports = |rules: &[IpPermission]| rules.iter().map(|rule| rule.from_port).collect::<BTreeSet<_>>();
    assert_eq!(
        ports(&fixture.aws.world().security_groups["sg-new1"].ingress),
        ports(&rules)
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_taken_back_at_once_is_taken_back_at_aws() {
    let fixture = settled().await;
    let rules = fixture.aws.world().security_groups["sg-new1"].ingress.clone();
    let networks = |networks: Option<Vec<String>>| {
        move |service: &mut Service| service.spec.as_mut().unwrap().load_balancer_source_ranges = networks
    };
    fixture.change(networks(Some(vec!["10.0.0.0/8".into()])));
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes().len(), 2);
    fixture.change(networks(None));
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes().len(), 4);
    let open = |rules: &[IpPermission]| {
        let each = |rule: &IpPermission| {
            (
                rule.from_port,
                rule.ranges.iter().map(|range| range.cidr.clone()).collect::<Vec<_>>(),
            )
        };
        rules.iter().map(each).collect::<BTreeSet<_>>()
    };
    let now = &fixture.aws.world().security_groups["sg-new1"].ingress;
    assert_eq!(open(now), open(&rules));
}

#[tokio::test(start_paused = true)]
async fn errors_are_reported_only_from_fresh_reads() {
    let fixture = settled().await;
    fixture.annotate("beat", "1");
    fixture.sync().await.unwrap();
    // The subnets that were told a moment ago are no longer the cluster's, and others are.
    fixture.aws.change(|world| {
        for subnet in &mut world.subnets {
            let mut new = subnet.clone();
            subnet.tags = names::cluster_tags("other", false);
            new.id = format!("{}-new", new.id);
            new.tags = names::cluster_tags("prod", false);
            subnet.vpc_id = Some("vpc-2".into());
            subnet.id = format!("{}-old", subnet.id);
            *subnet = new;
        }
        let lb = world.load_balancers.get_mut(LB).unwrap();
        lb.described.subnets = world.subnets.iter().map(|subnet| subnet.id.clone()).collect();
    });
    // By what was told the load balancer stands in wrong subnets; by what is it stands in the right ones.
    fixture.context.aws.shared.facts.forget(LB);
    fixture.aws.forget_calls();
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes().len(),
        1,
        "the Node joined, and nothing else: {:?}",
        fixture.aws.writes()
    );
    assert_eq!(counts(&fixture)["DescribeSubnets"], 1, "looked again before writing");
}

#[tokio::test(start_paused = true)]
async fn a_service_without_subnets_finds_them_as_soon_as_they_are_tagged() {
    let mut world = world();
    let subnets = std::mem::take(&mut world.subnets);
    let fixture = Fixture::new(world);
    assert!(matches!(fixture.sync().await, Err(Error::Environment(_))));
    fixture.aws.change(|world| world.subnets = subnets);
    advance(Duration::from_secs(5)).await;
    fixture.sync().await.unwrap();
    assert!(fixture.aws.world().load_balancers.contains_key(LB));
}

#[tokio::test(start_paused = true)]
async fn an_observed_load_balancer_is_not_prefetched_for_the_start_again() {
    let mut fixture = Fixture::new(world());
    fixture.context.writer = Arc::new(Anything);
    let services: Vec<Service> = (0..3).map(numbered).collect();
    let all: Vec<Arc<Service>> = services.iter().cloned().map(Arc::new).collect();
    fixture.context.aws.shared.prefetch_for(move || all.clone());
    // The third one is still to come when the Node joins: AWS has nothing of it.
    for service in services.iter().take(2) {
        let mut new = service.clone();
        (new.metadata.finalizers, new.status) = (None, None);
        reconcile(&fixture.context, &new).await.unwrap();
    }
    fixture.aws.forget_calls();
    fixture.node("i-3", true);
    for service in services.iter().take(2) {
        reconcile(&fixture.context, service).await.unwrap();
    }
    let counts = counts(&fixture);
    assert_eq!(
        (counts["DescribeLoadBalancers"], counts["DescribeTags"]),
        (2, 2),
        "{counts:?}"
    );
    assert_eq!(counts["RegisterInstancesWithLoadBalancer"], 2);
}
