//! Rules for health checks that several load balancers need, and that EC2 keeps once, with the description of one of
//! them.

use std::collections::BTreeSet;

use outrigger_aws::Error;
use outrigger_aws::ec2::{IpPermission, IpRange};

use super::super::super::action::Next;
use super::deletion::delete;
use super::*;

pub const OTHER: &str = "a0ffffffffffffffffffffffffffffff";
const FIRST: &str = "a1ffffffffffffffffffffffffffffff";
const SECOND: &str = "a2ffffffffffffffffffffffffffffff";

/// A load balancer whose checks come in at the port that all of kube-proxy's answer on.
pub async fn sharing() -> Fixture {
    let fixture = fixture();
    fixture.annotate("healthcheck-port", "10256");
    let fixture = settle(fixture).await;
    let before = rules(&fixture.aws.world(), "sg-node");
    for subnet in ["10.0.0.0/24", "10.0.1.0/24"] {
        assert!(before.contains(&of(LB, subnet)), "{before:?}");
    }
    fixture
}

pub fn of(load_balancer: &str, subnet: &str) -> String {
    format!("tcp/10256-10256<-{subnet} kubernetes.io/rule/nlb/health={load_balancer}")
}

/// The rules for health checks at that port.
pub fn checks(fixture: &Fixture) -> Vec<String> {
    let mut rules = rules(&fixture.aws.world(), "sg-node");
    rules.retain(|rule| rule.starts_with("tcp/10256"));
    rules
}

/// Another group of the cluster with the same rules, which no node has any more.
fn with_old_group(fixture: &Fixture) {
    fixture.aws.change(|world| {
        let mut group = world.security_groups["sg-node"].clone();
        (group.id, group.name) = ("sg-old".into(), Some("old".into()));
        world.security_groups.insert("sg-old".into(), group);
    });
}

/// Another load balancer like the Service's, in some of its subnets.
pub fn beside(fixture: &Fixture, name: &str, subnets: &[usize]) {
    fixture.aws.change(|world| {
        let arn = format!("arn:aws:elasticloadbalancing:eu-central-1:1:loadbalancer/net/{name}/1");
        let mut other = balancer(world).clone();
        (other.described.arn, other.described.name) = (arn.clone(), name.to_owned());
        let stands_in = subnets.iter().map(|at| world.subnets[*at].id.clone());
        other.described.subnets = stands_in.collect::<BTreeSet<String>>();
        world.network.load_balancers.insert(arn.clone(), other);
        let mut group = behind(world, 80);
        (group.described.arn, group.described.name) = (name.to_owned(), format!("k8s-default-{name}-1"));
        // No two Services have the same node port.
        group.described.port = 31080;
        group.targets = group
            .targets
            .into_iter()
            .map(|target| Target { port: 31080, ..target })
            .collect();
        world.network.target_groups.insert(name.to_owned(), group);
        let mut listener = listeners(world)[&80].clone();
        (listener.load_balancer, listener.settings.target_group_arn) = (arn, Some(name.to_owned()));
        world.network.listeners.insert(name.to_owned(), listener);
    });
}

#[tokio::test(start_paused = true)]
async fn rules_are_handed_over_with_the_deletion() {
    let fixture = sharing().await;
    beside(&fixture, OTHER, &[0, 1]);
    fixture.change(delete);
    fixture.settle().await;
    let left = rules(&fixture.aws.world(), "sg-node");
    assert_eq!(left, [of(OTHER, "10.0.0.0/24"), of(OTHER, "10.0.1.0/24")]);
}

#[tokio::test(start_paused = true)]
async fn each_rule_is_handed_over_to_a_load_balancer_with_the_same_check() {
    let fixture = sharing().await;
    beside(&fixture, FIRST, &[1]);
    beside(&fixture, SECOND, &[0]);
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), [of(SECOND, "10.0.0.0/24"), of(FIRST, "10.0.1.0/24")]);
}

#[tokio::test(start_paused = true)]
async fn rules_without_other_users_are_revoked() {
    let fixture = sharing().await;
    beside(&fixture, OTHER, &[1]);
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), [of(OTHER, "10.0.1.0/24")]);
}

#[tokio::test(start_paused = true)]
async fn load_balancers_of_another_cluster_vpc_or_origin_get_no_rules() {
    let fixture = sharing().await;
    // Nobody would take the rules away with this one.
    beside(&fixture, "made-by-hand", &[0, 1]);
    beside(&fixture, FIRST, &[0]);
    beside(&fixture, SECOND, &[1]);
    fixture.aws.change(|world| {
        for other in world.network.load_balancers.values_mut() {
            match other.described.name.as_str() {
                FIRST => other.tags.clear(),
                SECOND => other.described.vpc_id = Some("vpc-2".into()),
                _ => {}
            }
        }
    });
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), Vec::<String>::new());
}

/// To hand them over there would be for nothing: who has brought them is there to answer for them.
#[tokio::test(start_paused = true)]
async fn with_another_port_for_the_checks_they_stay_as_long_as_another_one_needs_them() {
    let fixture = sharing().await;
    beside(&fixture, OTHER, &[1]);
    fixture.annotate("healthcheck-port", "10257");
    fixture.settle().await;
    assert_eq!(checks(&fixture), [of(LB, "10.0.1.0/24")]);
    let all = rules(&fixture.aws.world(), "sg-node");
    assert!(
        all.contains(&format!("tcp/10257-10257<-10.0.0.0/24 {HEALTH}")),
        "{all:?}"
    );
    fixture.aws.change(|world| {
        let others = |arn: &String| !arn.contains(OTHER);
        world.network.load_balancers.retain(|arn, _| others(arn));
        world
            .network
            .listeners
            .retain(|_, listener| others(&listener.load_balancer));
    });
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(checks(&fixture), Vec::<String>::new());
}

/// Others may have nodes where this Service has none any more.
#[tokio::test(start_paused = true)]
async fn in_a_group_without_nodes_of_the_service_they_stay_as_well() {
    let fixture = sharing().await;
    with_old_group(&fixture);
    beside(&fixture, OTHER, &[0]);
    let again = async || {
        let times = fixture.aws.calls().len().to_string();
        fixture.annotate("seen", &times);
        fixture.settle().await;
        rules(&fixture.aws.world(), "sg-old")
    };
    assert_eq!(again().await, [of(LB, "10.0.0.0/24")]);
    fixture.aws.forget_calls();
    again().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    fixture.change(delete);
    assert_eq!(again().await, [of(OTHER, "10.0.0.0/24")]);
}

/// A rule that was taken away has no description by which it is found again.
#[tokio::test(start_paused = true)]
async fn handed_over_rules_are_restored_when_aws_is_busy() {
    const AUTHORIZE: &str = "AuthorizeSecurityGroupIngress";
    let handed = [of(OTHER, "10.0.0.0/24"), of(OTHER, "10.0.1.0/24")];
    for code in ["RequestLimitExceeded", "InternalError"] {
        let fixture = sharing().await;
        beside(&fixture, OTHER, &[0, 1]);
        fixture.change(delete);
        for _ in 0..4 {
            fixture
                .aws
                .fail_next(AUTHORIZE, Error::answered(AUTHORIZE, code, "busy"));
        }
        fixture.sync().await.unwrap();
        assert_eq!(rules(&fixture.aws.world(), "sg-node"), handed, "{code}");
    }
}

/// The answer to the revocation is lost, and so is the rest of this try.
#[tokio::test(start_paused = true)]
async fn rules_that_may_have_been_revoked_are_restored() {
    const REVOKE: &str = "RevokeSecurityGroupIngress";
    for code in ["RequestLimitExceeded", "InternalError"] {
        let fixture = sharing().await;
        beside(&fixture, OTHER, &[0, 1]);
        fixture.change(delete);
        // Those for clients and for path MTU discovery go first.
        fixture.aws.plan_next(REVOKE, None);
        fixture.aws.plan_next(REVOKE, None);
        fixture.aws.fail_next(REVOKE, Error::answered(REVOKE, code, "busy"));
        fixture.sync().await.unwrap_err();
        let writes = fixture.aws.writes();
        let last = writes.last().unwrap();
        assert!(last.starts_with("AuthorizeSecurityGroupIngress"), "{writes:?}");
        assert_eq!(checks(&fixture), [of(LB, "10.0.0.0/24"), of(LB, "10.0.1.0/24")]);
        fixture.settle().await;
        assert_eq!(
            rules(&fixture.aws.world(), "sg-node"),
            [of(OTHER, "10.0.0.0/24"), of(OTHER, "10.0.1.0/24")]
        );
    }
}

/// The Service is checked where its clients come in, and needs no rule for checks any more.
#[tokio::test(start_paused = true)]
async fn without_checks_of_its_own_a_service_keeps_those_of_others_where_it_has_no_nodes_too() {
    let fixture = sharing().await;
    with_old_group(&fixture);
    beside(&fixture, OTHER, &[0]);
    fixture.annotate("healthcheck-port", "traffic-port");
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-old"), [of(LB, "10.0.0.0/24")]);
    assert_eq!(checks(&fixture), [of(LB, "10.0.0.0/24"), of(LB, "10.0.1.0/24")]);
}

/// The one that has brought them goes while another one is made, which was told that they are there.
#[tokio::test(start_paused = true)]
async fn a_service_that_relies_on_a_shared_rule_is_requeued() {
    let fixture = fixture();
    fixture.annotate("healthcheck-port", "10256");
    let borrowed = |cidr: &str| IpRange {
        cidr: cidr.into(),
        description: Some(format!("kubernetes.io/rule/nlb/health={OTHER}")),
    };
    fixture.aws.change(|world| {
        let rule = IpPermission {
            protocol: "tcp".into(),
            from_port: Some(10256),
            to_port: Some(10256),
            ranges: ["10.0.0.0/24", "10.0.1.0/24"].map(borrowed).into(),
            ..IpPermission::default()
        };
        let group = world.security_groups.get_mut("sg-node").unwrap();
        group.ingress.push(rule);
        world.network.provisioning_looks = 0;
    });
    let again = async || match fixture.sync().await.unwrap() {
        Next::After(pause) => pause,
        Next::OnChange => panic!("nobody looks again"),
    };
    let mut pause = again().await;
    assert_eq!(pause, std::time::Duration::from_secs(5));
    let deletion = fixture.context.deleting.lock().await;
    for seconds in [10, 20] {
        tokio::time::advance(pause).await;
        pause = again().await;
        assert_eq!(pause, std::time::Duration::from_secs(seconds));
    }
    drop(deletion);
    assert_eq!(checks(&fixture), [of(OTHER, "10.0.0.0/24"), of(OTHER, "10.0.1.0/24")]);
    fixture.aws.change(|world| {
        let group = world.security_groups.get_mut("sg-node").unwrap();
        group.ingress.retain(|rule| rule.from_port != Some(10256));
    });
    tokio::time::advance(pause).await;
    fixture.sync().await.unwrap();
    assert_eq!(checks(&fixture), [of(LB, "10.0.0.0/24"), of(LB, "10.0.1.0/24")]);
}

/// A rule of the same text that lets something else in is no rule for checks.
#[tokio::test(start_paused = true)]
async fn rules_of_another_form_are_not_handed_over() {
    let fixture = sharing().await;
    beside(&fixture, OTHER, &[0, 1]);
    fixture.aws.change(|world| {
        let group = world.security_groups.get_mut("sg-node").unwrap();
        group.ingress.retain(|rule| rule.from_port != Some(10256));
        for (protocol, to) in [("udp", 10256), ("tcp", 10300)] {
            group.ingress.push(IpPermission {
                protocol: protocol.into(),
                from_port: Some(10256),
                to_port: Some(to),
                ranges: vec![IpRange {
                    cidr: "10.0.0.0/24".into(),
                    description: Some(HEALTH.into()),
                }],
                ..IpPermission::default()
            });
        }
    });
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-node"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_another_load_balancer_at_the_port_nothing_more_is_read() {
    let fixture = sharing().await;
    fixture.change(delete);
    fixture.settle().await;
    let calls = fixture.aws.calls();
    assert!(!calls.iter().any(|call| call.action == "DescribeSubnets"), "{calls:?}");
    assert_eq!(checks(&fixture), Vec::<String>::new());
}
