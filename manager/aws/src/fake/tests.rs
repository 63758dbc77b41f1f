//! Network load balancers in memory behave as AWS's.

use super::*;
use crate::ec2::{Ec2, Instance, SecurityGroup, Subnet};
use crate::elbv2::{
    Elbv2, HealthCheckChange, ListenerSettings, NewNetworkLoadBalancer, NewTargetGroup, SubnetMapping, Target,
    TargetHealthCheck,
};
use crate::{InstanceId, Kind, Tags};

fn world() -> World {
    let mut world = World::default();
    for (id, zone) in [("subnet-a", "a"), ("subnet-a2", "a"), ("subnet-b", "b")] {
        world.subnets.push(Subnet {
            id: id.into(),
            vpc_id: Some("vpc-1".into()),
            availability_zone: Some(zone.into()),
            ..Subnet::default()
        });
    }
    for id in ["sg-1", "sg-2"] {
        let group = SecurityGroup {
            id: id.into(),
            ..SecurityGroup::default()
        };
        world.security_groups.insert(id.into(), group);
    }
    for id in ["i-1", "i-2"] {
        world.instances.insert(InstanceId::new(id), Instance::new(id));
    }
    world
}

fn new(name: &str, groups: &[&str]) -> NewNetworkLoadBalancer {
    NewNetworkLoadBalancer {
        name: name.into(),
        subnets: vec![SubnetMapping {
            subnet_id: "subnet-a".into(),
            ..SubnetMapping::default()
        }],
        security_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..NewNetworkLoadBalancer::default()
    }
}

fn group(name: &str, protocol: &str) -> NewTargetGroup {
    NewTargetGroup {
        name: name.into(),
        port: 30_000,
        protocol: protocol.into(),
        vpc_id: "vpc-1".into(),
        health_check: TargetHealthCheck {
            protocol: "TCP".into(),
            port: "traffic-port".into(),
            path: None,
            interval: 30,
            healthy_threshold: 3,
            unhealthy_threshold: 3,
        },
        tags: Tags::new(),
    }
}

fn listener(port: i32, protocol: &str, group: &str) -> ListenerSettings {
    ListenerSettings {
        port,
        protocol: protocol.into(),
        target_group_arn: Some(group.into()),
        ..ListenerSettings::default()
    }
}

fn target(id: &str) -> Target {
    Target {
        id: InstanceId::new(id),
        port: 30_000,
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T>) -> String {
    answer.unwrap_err().code().unwrap_or("none").to_owned()
}

#[tokio::test]
async fn a_new_load_balancer_is_provisioning_and_then_active() {
    let aws = FakeAws::new(world());
    let made = aws.create_load_balancer(&new("a1", &[])).await.unwrap();
    assert_eq!(made.state.as_deref(), Some("provisioning"));
    for state in ["provisioning", "active", "active"] {
        let seen = aws.load_balancers(&["a1".to_owned()]).await.unwrap();
        assert_eq!(seen[0].state.as_deref(), Some(state));
    }
    assert_eq!(
        aws.load_balancers(&["a1".to_owned(), "a2".to_owned()])
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        Elbv2::attributes(&aws, &made.arn).await.unwrap()["load_balancing.cross_zone.enabled"],
        "false"
    );
}

#[tokio::test]
async fn names_are_unique_and_the_same_settings_give_the_same_thing() {
    let aws = FakeAws::new(world());
    let first = aws.create_load_balancer(&new("a1", &[])).await.unwrap();
    assert_eq!(aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn, first.arn);
    let other = aws.create_load_balancer(&new("a1", &["sg-1"])).await;
    assert_eq!(code(other), "DuplicateLoadBalancerName");
    let arn = aws.create_target_group(&group("k8s-1", "TCP")).await.unwrap();
    assert_eq!(aws.create_target_group(&group("k8s-1", "TCP")).await.unwrap(), arn);
    assert_eq!(
        code(aws.create_target_group(&group("k8s-1", "UDP")).await),
        "DuplicateTargetGroupName"
    );
    aws.delete_target_group(&arn).await.unwrap();
    assert_ne!(
        aws.create_target_group(&group("k8s-1", "TCP")).await.unwrap(),
        arn,
        "a new thing has a new ARN"
    );
}

#[tokio::test]
async fn subnets_addresses_and_groups_must_fit() {
    let aws = FakeAws::new(world());
    let with = |change: &dyn Fn(&mut NewNetworkLoadBalancer)| {
        let mut new = new("a1", &[]);
        change(&mut new);
        new
    };
    for (new, wanted) in [
        (with(&|new| new.subnets.clear()), "ValidationError"),
        (
            with(&|new| new.subnets[0].subnet_id = "subnet-x".into()),
            "SubnetNotFound",
        ),
        (
            with(&|new| {
                new.subnets.push(SubnetMapping {
                    subnet_id: "subnet-a2".into(),
                    ..SubnetMapping::default()
                });
            }),
            "InvalidConfigurationRequest",
        ),
        (
            with(&|new| {
                new.internal = true;
                new.subnets[0].allocation_id = Some("eipalloc-1".into());
            }),
            "InvalidConfigurationRequest",
        ),
        (
            with(&|new| new.security_groups = vec!["sg-x".into()]),
            "InvalidSecurityGroup",
        ),
    ] {
        assert_eq!(code(aws.create_load_balancer(&new).await), wanted);
    }
}

#[tokio::test]
async fn security_groups_change_only_where_there_were_some_from_the_start() {
    let aws = FakeAws::new(world());
    let bare = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let guarded = aws.create_load_balancer(&new("a2", &["sg-1"])).await.unwrap().arn;
    let groups = ["sg-2".to_owned()];
    assert_eq!(
        code(aws.set_security_groups(&bare, &groups).await),
        "InvalidConfigurationRequest"
    );
    aws.set_security_groups(&guarded, &groups).await.unwrap();
    assert_eq!(
        code(aws.set_security_groups(&guarded, &[]).await),
        "InvalidConfigurationRequest"
    );
    assert_eq!(code(aws.delete_security_group("sg-2").await), "DependencyViolation");
    aws.delete_security_group("sg-1").await.unwrap();
}

#[tokio::test]
async fn a_port_has_one_listener_whatever_its_protocol() {
    let aws = FakeAws::new(world());
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let tcp = aws.create_target_group(&group("tcp", "TCP")).await.unwrap();
    let udp = aws.create_target_group(&group("udp", "UDP")).await.unwrap();
    let first = aws
        .create_listener(&lb, &listener(80, "TCP", &tcp), &Tags::new())
        .await
        .unwrap();
    let second = aws.create_listener(&lb, &listener(80, "UDP", &udp), &Tags::new()).await;
    assert_eq!(code(second), "DuplicateListener");
    let mismatched = aws.create_listener(&lb, &listener(81, "TCP", &udp), &Tags::new()).await;
    assert_eq!(code(mismatched), "IncompatibleProtocols");
    aws.modify_listener(&first, &listener(80, "UDP", &udp)).await.unwrap();
    assert_eq!(aws.target_groups(&lb).await.unwrap()[0].name, "udp");
    aws.create_listener(&lb, &listener(81, "TCP", &tcp), &Tags::new())
        .await
        .unwrap();
    assert_eq!(
        code(aws.modify_listener(&first, &listener(81, "UDP", &udp)).await),
        "DuplicateListener"
    );
}

#[tokio::test]
async fn tls_needs_a_certificate_gets_a_policy_and_loses_both() {
    let aws = FakeAws::new(world());
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let tcp = aws.create_target_group(&group("tcp", "TCP")).await.unwrap();
    let arn = aws
        .create_listener(&lb, &listener(443, "TCP", &tcp), &Tags::new())
        .await
        .unwrap();
    assert_eq!(
        code(aws.modify_listener(&arn, &listener(443, "TLS", &tcp)).await),
        "ValidationError"
    );
    let mut tls = listener(443, "TLS", &tcp);
    tls.certificate = Some("cert-1".into());
    aws.modify_listener(&arn, &tls).await.unwrap();
    let seen = aws.listeners(&lb).await.unwrap().remove(0).settings;
    assert_eq!(seen.ssl_policy.as_deref(), Some("ELBSecurityPolicy-2016-08"));
    tls.ssl_policy = Some("mine".into());
    assert_eq!(code(aws.modify_listener(&arn, &tls).await), "SSLPolicyNotFound");
    aws.modify_listener(&arn, &listener(443, "TCP", &tcp)).await.unwrap();
    let seen = aws.listeners(&lb).await.unwrap().remove(0).settings;
    assert_eq!((seen.certificate, seen.ssl_policy), (None, None));
}

#[tokio::test]
async fn deletion_takes_the_listeners_and_leaves_the_target_groups() {
    let aws = FakeAws::new(world());
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let other = aws.create_load_balancer(&new("a2", &[])).await.unwrap().arn;
    let tcp = aws.create_target_group(&group("tcp", "TCP")).await.unwrap();
    aws.create_listener(&lb, &listener(80, "TCP", &tcp), &Tags::new())
        .await
        .unwrap();
    let shared = aws
        .create_listener(&other, &listener(80, "TCP", &tcp), &Tags::new())
        .await;
    assert_eq!(code(shared), "TargetGroupAssociationLimit");
    assert_eq!(
        aws.delete_target_group(&tcp).await.unwrap_err().kind(),
        Kind::DependencyViolation
    );
    let protection = |on: &str| Tags::from([("deletion_protection.enabled".to_owned(), on.to_owned())]);
    Elbv2::modify_attributes(&aws, &lb, &protection("true")).await.unwrap();
    assert_eq!(code(aws.delete_load_balancer(&lb).await), "OperationNotPermitted");
    Elbv2::modify_attributes(&aws, &lb, &protection("false")).await.unwrap();
    aws.change(|world| _ = world.lingering.insert(tcp.clone(), 1));
    aws.delete_load_balancer(&lb).await.unwrap();
    aws.delete_load_balancer(&lb).await.unwrap();
    assert!(aws.world().network.listeners.is_empty());
    assert_eq!(code(aws.delete_target_group(&tcp).await), "ResourceInUse");
    aws.delete_target_group(&tcp).await.unwrap();
    assert!(aws.target_groups_named(&["tcp".to_owned()]).await.unwrap().is_empty());
}

#[tokio::test]
async fn targets_drain_for_a_while_and_are_limited_in_number() {
    let aws = FakeAws::new(world());
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let tcp = aws.create_target_group(&group("tcp", "TCP")).await.unwrap();
    aws.create_listener(&lb, &listener(80, "TCP", &tcp), &Tags::new())
        .await
        .unwrap();
    aws.change(|world| world.quotas.targets_per_group = 1);
    assert_eq!(
        code(aws.register_targets(&tcp, &[target("i-1"), target("i-2")]).await),
        "TooManyTargets"
    );
    aws.register_targets(&tcp, &[target("i-1")]).await.unwrap();
    assert_eq!(
        code(aws.register_targets(&tcp, &[target("i-9")]).await),
        "InvalidTarget"
    );
    aws.deregister_targets(&tcp, &[target("i-1"), target("i-2")])
        .await
        .unwrap();
    aws.register_targets(&tcp, &[target("i-2")]).await.unwrap();
    let reasons: Vec<_> = aws
        .target_health(&tcp)
        .await
        .unwrap()
        .into_iter()
        .map(|t| t.reason)
        .collect();
    assert_eq!(reasons, [None, Some("Target.DeregistrationInProgress".to_owned())]);
    assert_eq!(aws.target_health(&tcp).await.unwrap().len(), 1);
}

#[tokio::test]
async fn health_checks_and_attributes_are_checked() {
    let aws = FakeAws::new(world());
    let mut bad = group("bad", "TCP");
    bad.health_check.path = Some("/healthz".into());
    assert_eq!(code(aws.create_target_group(&bad).await), "InvalidConfigurationRequest");
    bad.health_check.path = None;
    bad.health_check.port = "0".into();
    assert_eq!(code(aws.create_target_group(&bad).await), "ValidationError");
    let udp = aws.create_target_group(&group("udp", "UDP")).await.unwrap();
    let change = HealthCheckChange {
        unhealthy_threshold: Some(11),
        ..HealthCheckChange::default()
    };
    assert_eq!(code(aws.modify_target_group(&udp, &change).await), "ValidationError");
    let set = |key: &str, value: &str| Tags::from([(key.to_owned(), value.to_owned())]);
    let off = aws
        .modify_target_group_attributes(&udp, &set("preserve_client_ip.enabled", "false"))
        .await;
    assert_eq!(code(off), "InvalidConfigurationRequest");
    let on = aws
        .modify_target_group_attributes(&udp, &set("proxy_protocol_v2.enabled", "true"))
        .await;
    on.unwrap();
    assert_eq!(
        aws.target_group_attributes(&udp).await.unwrap()["proxy_protocol_v2.enabled"],
        "true"
    );
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let logs = Elbv2::modify_attributes(&aws, &lb, &set("access_logs.s3.enabled", "true")).await;
    assert_eq!(code(logs), "InvalidConfigurationRequest");
    assert_eq!(
        code(Elbv2::modify_attributes(&aws, &lb, &set("idle", "1")).await),
        "ValidationError"
    );
}

#[tokio::test]
async fn actions_that_both_apis_have_are_told_apart() {
    let aws = FakeAws::new(world());
    aws.fail_next(
        "CreateLoadBalancer",
        Error::answered("CreateLoadBalancer", "Throttling", "slow down"),
    );
    aws.create_load_balancer(&new("a1", &[])).await.unwrap();
    aws.fail_next(
        "CreateLoadBalancer/v2",
        Error::answered("CreateLoadBalancer", "Throttling", "slow down"),
    );
    assert_eq!(code(aws.create_load_balancer(&new("a2", &[])).await), "Throttling");
    assert_eq!(aws.writes(), ["CreateLoadBalancer/v2 a1", "CreateLoadBalancer/v2 a2"]);
    aws.die_at_write(1);
    assert!(aws.create_load_balancer(&new("a3", &[])).await.is_err());
    assert!(aws.world().network.named("a3").is_some(), "the write took effect");
    assert!(
        aws.all_load_balancers().await.is_err(),
        "and nothing after it gets through"
    );
}

#[tokio::test]
async fn tags_are_kept_by_arn_and_an_unknown_one_hides_no_other() {
    let aws = FakeAws::new(world());
    let lb = aws.create_load_balancer(&new("a1", &[])).await.unwrap().arn;
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    Elbv2::add_tags(&aws, std::slice::from_ref(&lb), &tags).await.unwrap();
    let found = aws
        .tags(&["arn:x:loadbalancer/net/gone/1".to_owned(), lb.clone()])
        .await
        .unwrap();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(lb, tags)]);
}
