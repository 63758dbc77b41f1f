//! Rules of the nodes' security groups.

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{IpPermission, IpRange};

use super::super::super::settings::Settings;
use super::super::fixture::Fixture;
use super::*;

fn networks(fixture: &Fixture, cidrs: &[&str]) {
    let cidrs = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
    fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(cidrs));
}

fn nodes(fixture: &Fixture) -> Vec<String> {
    rules(&fixture.aws.world(), "sg-node")
}

#[tokio::test(start_paused = true)]
async fn everyone_may_come_in_and_so_may_health_checks() {
    let fixture = settled().await;
    let expected = [
        format!("icmp/3-4<-0.0.0.0/0 {MTU}"),
        format!("tcp/30080-30080<-0.0.0.0/0 {CLIENT}"),
        format!("tcp/30443-30443<-0.0.0.0/0 {CLIENT}"),
    ];
    assert_eq!(nodes(&fixture), expected);
}

/// A cluster with the same ID may be in another VPC of the account.
#[tokio::test(start_paused = true)]
async fn a_group_of_another_vpc_gets_no_rule() {
    let fixture = fixture();
    fixture.aws.change(|world| {
        let mut foreign = world.security_groups["sg-node"].clone();
        (foreign.id, foreign.vpc_id) = ("sg-foreign".into(), Some("vpc-2".into()));
        let range = IpRange {
            cidr: "0.0.0.0/0".into(),
            description: Some("kubernetes.io/rule/nlb/client=afedcba9876543210fedcba987654321".into()),
        };
        foreign.ingress = vec![IpPermission {
            protocol: "tcp".into(),
            from_port: Some(30080),
            to_port: Some(30080),
            ranges: vec![range],
            ..IpPermission::default()
        }];
        world.security_groups.insert("sg-foreign".into(), foreign);
    });
    let before = rules(&fixture.aws.world(), "sg-foreign");
    fixture.settle().await;
    assert_eq!(nodes(&fixture).len(), 3);
    assert_eq!(rules(&fixture.aws.world(), "sg-foreign"), before);
}

#[tokio::test(start_paused = true)]
async fn listed_clients_and_the_subnets_of_health_checks_may_come_in() {
    let fixture = settled().await;
    networks(&fixture, &["192.168.0.0/16"]);
    fixture.settle().await;
    let mut expected = vec![format!("icmp/3-4<-192.168.0.0/16 {MTU}")];
    for port in ["30080-30080", "30443-30443"] {
        for subnet in ["10.0.0.0/24", "10.0.1.0/24"] {
            expected.push(format!("tcp/{port}<-{subnet} {HEALTH}"));
        }
        expected.push(format!("tcp/{port}<-192.168.0.0/16 {CLIENT}"));
    }
    assert_eq!(nodes(&fixture), expected);
    let writes = actions(&fixture);
    let first_revoke = writes.iter().position(|a| a.starts_with("Revoke")).unwrap();
    let last_authorize = writes.iter().rposition(|a| a.starts_with("Authorize")).unwrap();
    assert!(last_authorize < first_revoke, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn datagrams_are_let_in_as_such_and_checked_over_tcp() {
    let fixture = fixture();
    fixture.change(|service| {
        for port in service.spec.as_mut().unwrap().ports.as_mut().unwrap() {
            port.protocol = Some("UDP".into());
        }
    });
    fixture.settle().await;
    let seen = nodes(&fixture);
    assert!(
        seen.contains(&format!("udp/30080-30080<-0.0.0.0/0 {CLIENT}")),
        "{seen:?}"
    );
    assert!(
        seen.contains(&format!("tcp/30080-30080<-10.0.0.0/24 {HEALTH}")),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_there_for_another_reason_serves_and_stays() {
    let fixture = fixture();
    let by_hand = IpPermission {
        protocol: "tcp".into(),
        from_port: Some(30080),
        to_port: Some(30080),
        ranges: vec![IpRange {
            cidr: "0.0.0.0/0".into(),
            description: Some("by hand".into()),
        }],
        ..IpPermission::default()
    };
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-node").unwrap().ingress.push(by_hand));
    let fixture = settle(fixture).await;
    assert!(nodes(&fixture).contains(&"tcp/30080-30080<-0.0.0.0/0 by hand".to_owned()));
    networks(&fixture, &["10.1.0.0/16"]);
    fixture.settle().await;
    assert!(nodes(&fixture).contains(&"tcp/30080-30080<-0.0.0.0/0 by hand".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_group_without_targets_loses_the_rules() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let mut other = world.security_groups["sg-node"].clone();
        (other.id, other.name) = ("sg-other".into(), Some("other".into()));
        other.ingress.clear();
        world.security_groups.insert("sg-other".into(), other);
        for instance in world.instances.values_mut() {
            instance.security_groups = vec!["sg-other".into()];
        }
    });
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(nodes(&fixture), Vec::<String>::new());
    assert_eq!(rules(&fixture.aws.world(), "sg-other").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_rule_is_revoked_while_the_groups_of_a_target_are_unknown() {
    let fixture = settled().await;
    let before = nodes(&fixture);
    fixture.aws.change(|world| {
        let mut other = world.security_groups["sg-node"].clone();
        (other.id, other.name) = ("sg-other".into(), Some("other".into()));
        other.ingress.clear();
        world.security_groups.insert("sg-other".into(), other);
        let first = world.instances.get_mut(&InstanceId::new("i-1")).unwrap();
        first.security_groups = vec!["sg-other".into()];
        world.instances.remove(&InstanceId::new("i-2"));
    });
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    fixture.annotate("seen", "1");
    fixture.sync().await.unwrap();
    assert_eq!(nodes(&fixture), before, "i-2 may still be in it");
    assert_eq!(rules(&fixture.aws.world(), "sg-other").len(), 3);
}

/// A load balancer whose only target is i-1, of a group without the cluster's tag.
async fn in_a_group_without_tag() -> Fixture {
    let fixture = fixture();
    fixture.aws.change(|world| {
        let mut group = world.security_groups["sg-node"].clone();
        (group.id, group.name) = ("sg-plain".into(), Some("plain".into()));
        group.tags.clear();
        world.security_groups.insert("sg-plain".into(), group);
        let instance = world.instances.get_mut(&InstanceId::new("i-1")).unwrap();
        instance.security_groups = vec!["sg-plain".into()];
    });
    fixture.drop_node("i-2");
    let fixture = settle(fixture).await;
    assert_eq!(rules(&fixture.aws.world(), "sg-plain").len(), 3);
    assert_eq!(nodes(&fixture), Vec::<String>::new());
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_group_without_the_clusters_tag_loses_the_rules_with_its_last_node() {
    let fixture = in_a_group_without_tag().await;
    fixture.drop_node("i-1");
    fixture.node("i-2", true);
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-plain"), Vec::<String>::new());
    assert_eq!(nodes(&fixture).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_a_start_rules_are_found_in_a_group_that_no_node_has_any_more() {
    let mut fixture = in_a_group_without_tag().await;
    // The last process took the target away, and died.
    fixture.aws.change(|world| {
        for group in world.network.target_groups.values_mut() {
            group.targets.clear();
        }
    });
    fixture.drop_node("i-1");
    fixture.node("i-2", true);
    fixture.restart();
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-plain"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_any_port_no_health_check_is_let_in() {
    let fixture = fixture();
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.external_traffic_policy, spec.health_check_node_port) = (Some("Local".into()), Some(32000));
    });
    let fixture = settle(fixture).await;
    assert!(nodes(&fixture).iter().any(|rule| rule.contains("32000")));
    fixture.node("i-1", false);
    fixture.node("i-2", false);
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.external_traffic_policy, spec.health_check_node_port) = (Some("Cluster".into()), None);
        for port in spec.ports.as_mut().unwrap() {
            port.node_port = None;
        }
    });
    fixture.sync().await.unwrap();
    assert_eq!(nodes(&fixture), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_missing_rule_comes_back() {
    let fixture = settled().await;
    let before = nodes(&fixture);
    assert!(!before.is_empty());
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-node").unwrap().ingress.clear());
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(nodes(&fixture), before);
}

#[tokio::test(start_paused = true)]
async fn with_the_setting_no_rule_is_made_or_taken_away() {
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        disable_security_group_ingress: true,
        ..Settings::default()
    };
    let fixture = Fixture::with(network_world(), settings, Permit::always());
    fixture.annotate("type", "nlb");
    fixture.settle().await;
    assert_eq!(nodes(&fixture), Vec::<String>::new());
}
