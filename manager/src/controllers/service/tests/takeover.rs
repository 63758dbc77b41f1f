//! Taking over what a kube-controller-manager 1.26 with the in-tree provider has made.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{GroupPair, IpPermission, IpRange, SecurityGroup};
use outrigger_aws::elb::{AccessLog, Attributes, HealthCheck, Listener, LoadBalancer};
use outrigger_aws::fake::{FakeLoadBalancer, World};
use serde_json::json;

use super::super::spec::names::FINALIZER;
use super::fixture::{Fixture, HOST, LB, world};

fn tags(pairs: &[(&str, &str)]) -> outrigger_aws::Tags {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn open(protocol: &str, from: i32, to: i32) -> IpPermission {
    IpPermission {
        protocol: protocol.into(),
        from_port: Some(from),
        to_port: Some(to),
        ranges: vec![IpRange {
            cidr: "0.0.0.0/0".into(),
            description: None,
        }],
        ..IpPermission::default()
    }
}

/// The resources of the in-tree provider, as AWS describes them: written out here, not created by our own code.
fn in_tree() -> World {
    let mut world = world();
    let group = SecurityGroup {
        id: "sg-0old".into(),
        name: Some("k8s-elb-a12345678123412341234123456789ab".into()),
        description: Some("Security group for Kubernetes ELB a12345678123412341234123456789ab (default/web)".into()),
        vpc_id: Some("vpc-1".into()),
        ingress: vec![open("tcp", 80, 80), open("tcp", 443, 443), open("icmp", 3, 4)],
        tags: tags(&[("kubernetes.io/cluster/prod", "owned")]),
    };
    world.security_groups.insert(group.id.clone(), group);
    world.security_groups.get_mut("sg-node").unwrap().ingress = vec![IpPermission {
        protocol: "-1".into(),
        groups: vec![GroupPair {
            group_id: Some("sg-0old".into()),
            user_id: Some("123456789012".into()),
        }],
        ..IpPermission::default()
    }];
    let listener = |port, instance_port| Listener {
        port,
        protocol: "tcp".into(),
        instance_port,
        instance_protocol: "tcp".into(),
        certificate: None,
    };
    let described = LoadBalancer {
        name: LB.into(),
        dns_name: HOST.into(),
        scheme: Some("internet-facing".into()),
        vpc_id: Some("vpc-1".into()),
        listeners: vec![listener(443, 30443), listener(80, 30080)],
        subnets: BTreeSet::from(["subnet-a".into(), "subnet-b".into()]),
        security_groups: vec!["sg-0old".into()],
        instances: BTreeSet::from([InstanceId::new("i-1"), InstanceId::new("i-2")]),
        health_check: Some(HealthCheck {
            target: "TCP:30080".into(),
            interval: 10,
            timeout: 5,
            unhealthy_threshold: 6,
            healthy_threshold: 2,
        }),
        ..LoadBalancer::default()
    };
    let attributes = Attributes {
        cross_zone: Some(false),
        access_log: Some(AccessLog {
            enabled: false,
            emit_interval: Some(60),
            ..AccessLog::default()
        }),
        connection_draining: Some(false),
        connection_draining_timeout: Some(300),
        idle_timeout: Some(60),
    };
    let tags = tags(&[
        ("kubernetes.io/service-name", "default/web"),
        ("kubernetes.io/cluster/prod", "owned"),
    ]);
    world.load_balancers.insert(
        LB.into(),
        FakeLoadBalancer {
            described,
            attributes,
            tags,
        },
    );
    world
}

fn taken_over() -> Fixture {
    let fixture = Fixture::new(in_tree());
    fixture.change(|service| {
        service.metadata.finalizers = Some(vec![FINALIZER.into()]);
        let ingress = json!({"loadBalancer": {"ingress": [{"hostname": HOST}]}});
        service.status = Some(serde_json::from_value(ingress).unwrap());
    });
    fixture
}

#[tokio::test(start_paused = true)]
async fn taking_over_writes_nothing_anywhere() {
    let fixture = taken_over();
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    assert!(fixture.api.patches.lock().unwrap().is_empty() && fixture.events().is_empty());
    assert_eq!(fixture.aws.world(), in_tree());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_finds_what_was_changed_after_the_in_tree_manager() {
    type Drift = fn(&mut World);
    let drifts: [(Drift, &str); 6] = [
        (|_| {}, ""),
        (
            |world| balancer(world).attributes.idle_timeout = Some(90),
            "ModifyLoadBalancerAttributes",
        ),
        (
            |world| drop(balancer(world).described.listeners.pop()),
            "CreateLoadBalancerListeners",
        ),
        (
            |world| _ = balancer(world).described.instances.insert(InstanceId::new("i-3")),
            "DeregisterInstancesFromLoadBalancer",
        ),
        (
            |world| world.security_groups.get_mut("sg-node").unwrap().ingress.clear(),
            "AuthorizeSecurityGroupIngress",
        ),
        (|world| _ = world.load_balancers.remove(LB), "CreateLoadBalancer"),
    ];
    for (drift, action) in drifts {
        let fixture = taken_over();
        fixture.aws.change(drift);
        let found = fixture.dry_run().await;
        let actions: Vec<&str> = found.iter().map(|change| change.action.as_str()).collect();
        assert_eq!(actions.contains(&action), !action.is_empty(), "{action}: {found:?}");
        assert_eq!(actions.is_empty(), action.is_empty(), "{found:?}");
        assert!(
            found
                .iter()
                .all(|change| change.object == "Service default/web" && !change.reason.is_empty())
        );
        assert_eq!(fixture.aws.writes(), Vec::<String>::new());
        assert!(fixture.api.patches.lock().unwrap().is_empty() && fixture.events().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_names_what_the_controller_cannot_do() {
    let fixture = taken_over();
    fixture.annotate("connection-idle-timeout", "soon");
    let found = fixture.dry_run().await;
    let [change] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(change.action, "SyncLoadBalancerFailed");
    assert!(change.reason.contains("soon"), "{change:?}");

    let fixture = taken_over();
    fixture.change(|service| service.status = None);
    let found = fixture.dry_run().await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].reason.contains(HOST), "{found:?}");
}

fn balancer(world: &mut World) -> &mut FakeLoadBalancer {
    world.load_balancers.get_mut(LB).unwrap()
}

#[tokio::test(start_paused = true)]
async fn targets_that_are_not_ready_at_the_switch_stay_and_others_do_not_join() {
    let fixture = taken_over();
    fixture.node("i-1", false);
    fixture.node("i-3", false);
    fixture.settle().await;
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_over_can_be_deleted_without_a_trace() {
    let fixture = taken_over();
    fixture.change(|service| {
        service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    });
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.world(), world());
}
