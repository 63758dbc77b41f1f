//! Events, and the waits before targets are deregistered.

use std::time::Duration;

use outrigger_aws::fake::World;
use outrigger_leader::Permit;
use serde_json::json;
use tokio::time::Instant;

use super::super::action::Next;
use super::super::settings::Quota;
use super::super::settings::Settings;
use super::fixture::{Fixture, LB, world};

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.api.events.lock().unwrap().clear();
    fixture
}

fn reasons(fixture: &Fixture) -> Vec<String> {
    let events = fixture.events();
    let reason = |event: &String| event.split(' ').nth(1).unwrap().to_owned();
    events.iter().map(reason).collect()
}

/// As long as nobody asks for anything, the longest time until drift is looked for.
const RESYNC: Duration = Duration::from_secs(1980);

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_and_reported() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let described = &mut world.load_balancers.get_mut(LB).unwrap().described;
        described.listeners.pop();
        world.security_groups.get_mut("sg-new1").unwrap().ingress.pop();
    });
    tokio::time::advance(RESYNC).await;
    fixture.sync().await.unwrap();
    let told = fixture.events();
    assert_eq!(told.len(), 1, "{told:?}");
    let expected = "Normal RepairedLoadBalancer Repaired load balancer, which was changed at AWS: \
                    AuthorizeSecurityGroupIngress (ports or client networks are missing), CreateLoadBalancerListeners \
                    (ports of the Service have no such listener)";
    assert_eq!(told[0], expected);
    tokio::time::advance(RESYNC).await;
    fixture.sync().await.unwrap();
    assert_eq!(fixture.events().len(), 1, "nothing to repair, nothing to tell");
}

#[tokio::test(start_paused = true)]
async fn without_a_resync_period_drift_is_not_detected() {
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        ..Settings::default()
    };
    let fixture = Fixture::with(world(), settings, Permit::always());
    fixture.settle().await;
    fixture.aws.forget_calls();
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(fixture.sync().await.unwrap(), Next::OnChange);
    assert!(fixture.aws.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restart_emits_events_only_for_writes() {
    let mut fixture = settled().await;
    fixture.restart();
    fixture.sync().await.unwrap();
    assert!(fixture.events().is_empty());
    fixture.aws.change(|world| {
        world.load_balancers.get_mut(LB).unwrap().described.listeners.pop();
    });
    fixture.restart();
    fixture.sync().await.unwrap();
    assert_eq!(reasons(&fixture), ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_reported_as_ensured_after_its_success() {
    let fixture = Fixture::new(world());
    let denied = outrigger_aws::Error::answered("CreateLoadBalancer", "AccessDenied", "no");
    fixture.aws.fail_next("CreateLoadBalancer", denied);
    assert!(fixture.sync().await.is_err());
    fixture.sync().await.unwrap();
    let expected = ["EnsuringLoadBalancer", "SyncLoadBalancerFailed", "EnsuredLoadBalancer"];
    assert_eq!(reasons(&fixture), expected);
}

#[tokio::test(start_paused = true)]
async fn a_failed_update_of_targets_names_the_nodes() {
    let fixture = settled().await;
    let denied = outrigger_aws::Error::answered("RegisterInstancesWithLoadBalancer", "AccessDenied", "no");
    fixture.aws.fail_next("RegisterInstancesWithLoadBalancer", denied);
    fixture.node("i-3", true);
    assert!(fixture.sync().await.is_err());
    let told = fixture.events();
    let beginning = "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [i-1 i-2 i-3] [node \
                     names limited, total number of nodes: 3], error: AWS RegisterInstancesWithLoadBalancer: AccessDenied";
    assert!(told.len() == 1 && told[0].starts_with(beginning), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_nodes_is_reported_once_and_after_each_change() {
    let fixture = Fixture::new(world());
    fixture.drop_node("i-1");
    fixture.drop_node("i-2");
    fixture.settle().await;
    let expected = ["EnsuringLoadBalancer", "UnAvailableLoadBalancer", "EnsuredLoadBalancer"];
    assert_eq!(reasons(&fixture), expected);
    fixture.annotate("beat", "1");
    fixture.settle().await;
    assert_eq!(reasons(&fixture), [expected, expected].concat());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_about_to_be_drained_leaves_at_once() {
    let fixture = settled().await;
    fixture.nodes.observe(kube::runtime::watcher::Event::Apply(
        serde_json::from_value(json!({
            "metadata": {"name": "i-2", "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}},
            "spec": {"providerID": "aws:///eu-central-1a/i-2"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap(),
    ));
    fixture.sync().await.unwrap();
    let expected = [format!("DeregisterInstancesFromLoadBalancer {LB} i-2")];
    assert_eq!(
        fixture.aws.writes(),
        expected,
        "half of the targets, and no second look"
    );
    assert_eq!(reasons(&fixture), ["UpdatedLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn no_target_is_removed_directly_after_a_start() {
    let mut fixture = Fixture::new(world());
    for id in ["i-3", "i-4", "i-5", "i-6"] {
        fixture.aws.change(|world| {
            let instance = super::fixture::instance(id);
            world.instances.insert(instance.id.clone(), instance);
        });
        fixture.node(id, true);
    }
    fixture.settle().await;
    fixture.restart();
    fixture.context.settled_at = Instant::now() + Duration::from_secs(30);
    fixture.aws.forget_calls();
    fixture.drop_node("i-6");
    assert_eq!(fixture.sync().await.unwrap(), Next::After(Duration::from_secs(30)));
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    tokio::time::advance(Duration::from_secs(30)).await;
    fixture.sync().await.unwrap();
    let expected = [format!("DeregisterInstancesFromLoadBalancer {LB} i-6")];
    assert_eq!(fixture.aws.writes(), expected, "one of six needs no second look");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_aws_calls_full_loses_rules_before_it_gets_others() {
    let fixture = with_quota(8, false, world());
    fixture.settle().await;
    let networks = |cidr: &str| {
        let cidr = cidr.to_owned();
        fixture.change(|service| service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec![cidr]));
    };
    let order = || {
        let writes = fixture.aws.writes();
        let action = |write: &String| write.split(' ').next().map(str::to_owned);
        writes.iter().filter_map(action).collect::<Vec<_>>()
    };
    let (open, close) = ("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress");
    fixture.aws.forget_calls();
    networks("10.8.0.0/16");
    fixture.sync().await.unwrap();
    assert_eq!(order(), [open, close], "AWS may allow more than its default");
    fixture.aws.forget_calls();
    networks("10.9.0.0/16");
    let full = outrigger_aws::Error::answered(open, "RulesPerSecurityGroupLimitExceeded", "60");
    fixture.aws.fail_next(open, full.clone());
    fixture.sync().await.unwrap();
    assert_eq!(order(), [open, close, open]);
    fixture.aws.forget_calls();
    networks("10.7.0.0/16");
    fixture.aws.fail_next(open, full.clone());
    fixture.aws.fail_next(open, full);
    assert!(fixture.sync().await.is_err(), "there is nothing more to make room by");
    assert_eq!(order(), [open, close, open]);
}

fn with_quota(rules: usize, enforced: bool, world: World) -> Fixture {
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        rules_quota: Quota { rules, enforced },
        ..Settings::default()
    };
    let fixture = Fixture::with(world, settings, Permit::always());
    fixture.change(|service| {
        let ranges = (0..3).map(|n| format!("10.{n}.0.0/16")).collect();
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(ranges);
    });
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_group_near_its_quota_is_reported_once_and_the_load_balancer_is_created() {
    // Two ports and path MTU discovery from three networks: nine rules.
    let fixture = with_quota(10, true, world());
    fixture.settle().await;
    fixture.annotate("beat", "1");
    fixture.settle().await;
    // Another network in the place of one, twice: as many rules as before, in a group that has an ID by then.
    for network in ["10.8.0.0/16", "10.9.0.0/16"] {
        fixture.change(|service| {
            let spec = service.spec.as_mut().unwrap();
            spec.load_balancer_source_ranges.as_mut().unwrap()[0] = network.into();
        });
        fixture.settle().await;
    }
    let told = fixture.events();
    let warnings: Vec<&String> = told
        .iter()
        .filter(|event| event.contains("SecurityGroupNearlyFull"))
        .collect();
    assert_eq!(warnings.len(), 2, "{told:?}");
    for (warning, group) in warnings.iter().zip(["of the load balancer", "sg-new1"]) {
        assert!(
            warning.contains(group) && warning.contains("9 rules of 10"),
            "{warnings:?}"
        );
    }
    assert_eq!(fixture.aws.world().load_balancers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_full_group_with_a_configured_quota_are_revoked_first() {
    let fixture = with_quota(9, true, world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.change(|service| {
        let ranges = vec!["10.7.0.0/16".into()];
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(ranges);
    });
    fixture.sync().await.unwrap();
    let writes = fixture.aws.writes();
    let closed = writes.iter().position(|write| write.starts_with("Revoke"));
    let opened = writes.iter().position(|write| write.starts_with("Authorize"));
    assert!(closed.is_some() && closed < opened, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_was_set_stops_the_plan_before_its_first_write() {
    let fixture = with_quota(8, true, world());
    let error = fixture.sync().await.unwrap_err().to_string();
    assert!(error.contains("9 rules, and the quota is 8"), "{error}");
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    let fixture = with_quota(8, false, world());
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.world().load_balancers.len(), 1, "AWS may allow more");
}
