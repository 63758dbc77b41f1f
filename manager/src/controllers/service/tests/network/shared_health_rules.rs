//! Rules for health checks that several load balancers need, and that EC2 keeps once, with the description of one of
//! them.

use outrigger_aws::Error;
use outrigger_aws::ec2::{IpPermission, IpRange};

use super::super::super::error::Error::RulesDeferred;
use super::super::super::queue::service_state::CONFIRMATION;
use super::super::super::spec::annotations::PREFIX;
use super::super::fixture::Answer;
use super::deletion::delete;
use super::node_ports::{UID, neighbour};
use super::*;

/// The load balancer of the neighbour.
pub const OTHER: &str = "ab2345678123412341234123456789ab";
const DESCRIBE: &str = "UpdateSecurityGroupRuleDescriptionsIngress";
const SUBNETS: [&str; 2] = ["10.0.0.0/24", "10.0.1.0/24"];

/// A load balancer whose checks come in at the port that all of kube-proxy's answer on.
async fn alone() -> Fixture {
    let fixture = fixture();
    fixture.annotate("healthcheck-port", "10256");
    let fixture = settle(fixture).await;
    assert_eq!(checks(&fixture), of(LB));
    fixture
}

/// The same beside the load balancer of a neighbour with the same checks.
pub async fn sharing() -> Fixture {
    let fixture = alone().await;
    let mut neighbour = neighbour(31080);
    let key = format!("{PREFIX}healthcheck-port");
    neighbour
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert(key, "10256".into());
    fixture.api.neighbours.lock().unwrap().push(neighbour);
    sync_neighbour(&fixture).await;
    assert_eq!(checks(&fixture), of(LB), "the rules serve both");
    fixture.aws.forget_calls();
    fixture
}

pub async fn sync_neighbour(fixture: &Fixture) {
    for _ in 0..4 {
        // A refused spec is a failure.
        let _: Result<_, _> = fixture.sync_neighbour(0).await;
        tokio::time::advance(CONFIRMATION).await;
    }
}

pub fn of(load_balancer: &str) -> Vec<String> {
    let rule = |subnet: &str| format!("tcp/10256-10256<-{subnet} kubernetes.io/rule/nlb/health={load_balancer}");
    SUBNETS.map(rule).to_vec()
}

/// The rules for health checks at that port.
pub fn checks(fixture: &Fixture) -> Vec<String> {
    let mut rules = rules(&fixture.aws.world(), "sg-node");
    rules.retain(|rule| rule.starts_with("tcp/10256"));
    rules
}

/// Whether rules at that port were revoked or added.
fn interrupts(fixture: &Fixture) -> bool {
    let writes = fixture.aws.writes();
    let mut writes = writes.iter().filter(|write| write.contains(" tcp/10256"));
    writes.any(|write| !write.starts_with(DESCRIBE))
}

/// Its load balancer is not read after a restart, since its finalizer cannot be written.
#[tokio::test(start_paused = true)]
async fn rules_stay_for_another_one_of_which_nothing_is_known() {
    let mut fixture = Box::pin(sharing()).await;
    fixture.restart();
    fixture.sync().await.unwrap();
    fixture.api.neighbours.lock().unwrap()[0].metadata.finalizers = None;
    for _ in 0..4 {
        fixture.api.answers.lock().unwrap().push(Answer::Refused);
        fixture.sync_neighbour(0).await.unwrap_err();
    }
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(checks(&fixture), of(OTHER));
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_deleted_load_balancer_stay_for_another_one_without_interruption() {
    let fixture = sharing().await;
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), of(OTHER));
    assert!(!interrupts(&fixture), "{:#?}", fixture.aws.writes());
}

#[tokio::test(start_paused = true)]
async fn with_another_port_for_the_checks_they_stay_as_long_as_another_one_needs_them() {
    let fixture = sharing().await;
    fixture.annotate("healthcheck-port", "10257");
    fixture.settle().await;
    assert_eq!(checks(&fixture), of(OTHER));
    assert!(!interrupts(&fixture), "{:#?}", fixture.aws.writes());
    let all = rules(&fixture.aws.world(), "sg-node");
    let own = format!("tcp/10257-10257<-10.0.0.0/24 {HEALTH}");
    assert!(all.contains(&own), "{all:?}");

    delete(&mut fixture.api.neighbours.lock().unwrap()[0]);
    sync_neighbour(&fixture).await;
    assert_eq!(checks(&fixture), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_that_leaves_last_leaves_no_rule() {
    let fixture = sharing().await;
    delete(&mut fixture.api.neighbours.lock().unwrap()[0]);
    sync_neighbour(&fixture).await;
    assert_eq!(checks(&fixture), of(LB));
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-node"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn two_load_balancers_that_are_deleted_at_the_same_time_leave_no_rule() {
    let fixture = sharing().await;
    delete(&mut fixture.api.neighbours.lock().unwrap()[0]);
    fixture.change(delete);
    let (first, second) = tokio::join!(fixture.sync(), fixture.sync_neighbour(0));
    first.and(second).unwrap();
    assert_eq!(rules(&fixture.aws.world(), "sg-node"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn in_a_group_without_nodes_no_rule_stays() {
    let fixture = sharing().await;
    fixture.aws.change(|world| {
        let mut group = world.security_groups["sg-node"].clone();
        (group.id, group.name) = ("sg-old".into(), Some("old".into()));
        world.security_groups.insert("sg-old".into(), group);
    });
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(rules(&fixture.aws.world(), "sg-old"), Vec::<String>::new());
    assert_eq!(checks(&fixture), of(LB));
}

/// A role for v1.37 may not change descriptions.
#[tokio::test(start_paused = true)]
async fn without_the_permission_rules_keep_the_old_description_until_nobody_needs_them() {
    let fixture = sharing().await;
    fixture.aws.deny("ec2:UpdateSecurityGroupRuleDescriptionsIngress");
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), of(LB));

    delete(&mut fixture.api.neighbours.lock().unwrap()[0]);
    sync_neighbour(&fixture).await;
    assert_eq!(checks(&fixture), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_descriptions_that_fails_is_retried_and_changes_no_rule() {
    for code in ["RequestLimitExceeded", "InternalError"] {
        let fixture = sharing().await;
        fixture.change(delete);
        fixture.aws.fail_next(DESCRIBE, Error::answered(DESCRIBE, code, "busy"));
        fixture.sync().await.unwrap_err();
        assert_eq!(checks(&fixture), of(LB), "{code}");
        fixture.settle().await;
        assert_eq!(checks(&fixture), of(OTHER), "{code}");
    }
}

/// The new process does not know yet what the neighbour needs.
#[tokio::test(start_paused = true)]
async fn after_a_start_a_deletion_waits_until_all_services_have_claimed() {
    let mut fixture = sharing().await;
    let before = rules(&fixture.aws.world(), "sg-node");
    fixture.change(delete);
    for _ in 0..2 {
        fixture.restart();
        let error = fixture.sync().await.unwrap_err();
        assert!(matches!(error, RulesDeferred { .. }), "{error}");
        assert_eq!(rules(&fixture.aws.world(), "sg-node"), before);
        assert_eq!(fixture.service().metadata.finalizers.unwrap_or_default().len(), 1);
    }

    sync_neighbour(&fixture).await;
    fixture.settle().await;
    let mut left = of(OTHER);
    left.push(format!(
        "tcp/31080-31080<-0.0.0.0/0 kubernetes.io/rule/nlb/client={OTHER}"
    ));
    left.insert(0, format!("icmp/3-4<-0.0.0.0/0 {MTU}"));
    assert_eq!(rules(&fixture.aws.world(), "sg-node"), left);
    assert!(!interrupts(&fixture), "{:#?}", fixture.aws.writes());
}

/// Each of them claims: a classic load balancer with given groups, none, and one of another controller.
#[tokio::test(start_paused = true)]
async fn after_a_start_no_kind_of_service_stops_revocations_for_ever() {
    let refused = [
        ("cross-zone-load-balancing-enabled", "on"),
        ("security-groups", "sg-node"),
    ];
    let elsewhere = [("type", "external")];
    for annotations in [&refused[..], &refused[..1], &elsewhere[..]] {
        for has_address in [true, false] {
            let mut fixture = sharing().await;
            fixture.restart();
            fixture.change(delete);
            fixture.api.change(Some(&UID.to_owned()), |service| {
                let key = |(key, value): &(&str, &str)| (format!("{PREFIX}{key}"), (*value).to_owned());
                service.metadata.annotations = Some(annotations.iter().map(key).collect());
                service.status = service.status.take().filter(|_| has_address);
            });
            sync_neighbour(&fixture).await;
            fixture.settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_neighbour_keeps_the_rules_that_it_relies_on_also_after_a_start() {
    let mut fixture = sharing().await;
    let key = format!("{PREFIX}healthcheck-protocol");
    let neighbour = UID.to_owned();
    fixture.api.change(Some(&neighbour), |service| {
        _ = service
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(key, "smoke".into());
    });
    fixture.restart();
    sync_neighbour(&fixture).await;
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(checks(&fixture), of(OTHER));
    assert!(!interrupts(&fixture), "{:#?}", fixture.aws.writes());
}

/// A rule of the same text that lets something else in is no rule for checks.
#[tokio::test(start_paused = true)]
async fn rules_of_another_form_are_revoked() {
    let fixture = sharing().await;
    fixture.aws.change(|world| {
        let group = world.security_groups.get_mut("sg-node").unwrap();
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
    assert_eq!(checks(&fixture), of(OTHER));
    let all = rules(&fixture.aws.world(), "sg-node");
    assert!(!all.iter().any(|rule| rule.starts_with("udp/10256")), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn rules_of_no_other_load_balancer_are_revoked() {
    let fixture = alone().await;
    fixture.change(delete);
    fixture.settle().await;
    let calls = fixture.aws.calls();
    assert!(!calls.iter().any(|call| call.action == "DescribeSubnets"), "{calls:?}");
    assert_eq!(checks(&fixture), Vec::<String>::new());
}
