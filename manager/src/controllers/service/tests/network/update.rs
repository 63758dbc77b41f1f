//! Changing listeners, target groups and targets of network load balancers.

use outrigger_aws::InstanceId;
use serde_json::json;

use super::super::super::error::{Environment, Error};
use super::super::super::queue::service_state::CONFIRMATION;
use super::super::fixture::Fixture;
use super::node_ports::clients;
use super::*;

fn port(fixture: &Fixture, at: usize, change: impl Fn(&mut k8s_openapi::api::core::v1::ServicePort)) {
    fixture.change(|service| change(&mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[at]));
}

fn protocols(world: &World) -> Vec<String> {
    let all = listeners(world);
    let text = |(port, listener): (&i32, &FakeListener)| {
        format!(
            "{}:{port}->{}",
            listener.settings.protocol,
            behind(world, *port).described.protocol
        )
    };
    all.iter().map(text).collect()
}

/// Every target group is behind a listener.
fn assert_nothing_left_over(world: &World) {
    assert_eq!(world.network.target_groups.len(), world.network.listeners.len());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_turns_a_listener_and_its_removal_turns_it_back() {
    let fixture = settled().await;
    fixture.annotate("ssl-cert", "arn:cert");
    fixture.annotate("ssl-ports", "443");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["ModifyListener"]);
    assert_eq!(protocols(&fixture.aws.world()), ["TCP:80->TCP", "TLS:443->TCP"]);
    fixture.aws.forget_calls();
    fixture.annotate("ssl-cert", "");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["ModifyListener"]);
    assert_eq!(protocols(&fixture.aws.world()), ["TCP:80->TCP", "TCP:443->TCP"]);
}

#[tokio::test(start_paused = true)]
async fn an_encrypted_backend_gets_its_own_target_group() {
    let fixture = settled().await;
    fixture.annotate("ssl-cert", "arn:cert");
    fixture.annotate("ssl-ports", "443");
    fixture.annotate("backend-protocol", "ssl");
    fixture.settle().await;
    let expected = [
        "CreateTargetGroup",
        "RegisterTargets",
        "ModifyListener",
        "DeleteTargetGroup",
    ];
    assert_eq!(actions(&fixture), expected);
    let world = fixture.aws.world();
    assert_eq!(protocols(&world), ["TCP:80->TCP", "TLS:443->TLS"]);
    assert_nothing_left_over(&world);
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_set_when_asked_for_and_aws_choice_is_none_to_change() {
    let fixture = fixture();
    fixture.annotate("ssl-cert", "arn:cert");
    let fixture = settle(fixture).await;
    assert!(listeners(&fixture.aws.world())[&443].settings.ssl_policy.is_some());
    fixture.annotate("beat", "1");
    fixture.settle().await;
    assert_eq!(
        actions(&fixture),
        Vec::<String>::new(),
        "nobody has asked for another one"
    );
    fixture.annotate("ssl-negotiation-policy", "ELBSecurityPolicy-TLS13-1-2-2021-06");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["ModifyListener", "ModifyListener"]);
    fixture.aws.forget_calls();
    fixture.annotate("ssl-negotiation-policy", "");
    fixture.annotate("ssl-cert", "arn:another");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["ModifyListener", "ModifyListener"]);
    let listener = &listeners(&fixture.aws.world())[&443].settings;
    assert_eq!(listener.certificate.as_deref(), Some("arn:another"));
}

#[tokio::test(start_paused = true)]
async fn datagrams_need_another_listener_for_which_all_is_ready() {
    let fixture = settled().await;
    for at in [0, 1] {
        port(&fixture, at, |port| port.protocol = Some("UDP".into()));
    }
    fixture.settle().await;
    let one = [
        "CreateTargetGroup",
        "RegisterTargets",
        "DeleteListener",
        "CreateListener",
        "DeleteTargetGroup",
    ];
    let both: Vec<String> = one.iter().chain(&one).map(|action| (*action).to_owned()).collect();
    let done: Vec<String> = actions(&fixture)
        .into_iter()
        .filter(|a| !a.ends_with("Ingress"))
        .collect();
    assert_eq!(done, both);
    let world = fixture.aws.world();
    assert_eq!(protocols(&world), ["UDP:80->UDP", "UDP:443->UDP"]);
    assert_nothing_left_over(&world);
}

#[tokio::test(start_paused = true)]
async fn another_node_port_or_interval_makes_another_target_group_that_is_full_before_it_is_used() {
    let fixture = settled().await;
    port(&fixture, 0, |port| port.node_port = Some(31080));
    fixture.settle().await;
    let changed: Vec<String> = actions(&fixture)
        .into_iter()
        .filter(|a| !a.ends_with("Ingress"))
        .collect();
    let expected = [
        "CreateTargetGroup",
        "RegisterTargets",
        "ModifyListener",
        "DeleteTargetGroup",
    ];
    assert_eq!(changed, expected);
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:31080", "i-2:31080"]);
    fixture.aws.forget_calls();
    fixture.annotate("healthcheck-interval", "10");
    fixture.settle().await;
    assert_eq!(
        actions(&fixture).len(),
        8,
        "both target groups are made anew: {:?}",
        fixture.aws.writes()
    );
    assert_nothing_left_over(&fixture.aws.world());
}

#[tokio::test(start_paused = true)]
async fn what_can_be_changed_of_a_health_check_is_changed() {
    let fixture = fixture();
    fixture.annotate("healthcheck-protocol", "http");
    let fixture = settle(fixture).await;
    for (annotation, value) in [("healthcheck-path", "/ready"), ("healthcheck-unhealthy-threshold", "5")] {
        fixture.annotate(annotation, value);
        fixture.settle().await;
        assert_eq!(
            actions(&fixture),
            ["ModifyTargetGroup", "ModifyTargetGroup"],
            "{annotation}"
        );
        fixture.aws.forget_calls();
    }
    let check = behind(&fixture.aws.world(), 80).described.health_check;
    assert_eq!((check.path.as_deref(), check.unhealthy_threshold), (Some("/ready"), 5));
}

#[tokio::test(start_paused = true)]
async fn ports_are_added_before_others_are_removed() {
    let fixture = settled().await;
    port(&fixture, 0, |port| port.port = 8080);
    fixture.settle().await;
    let expected = [
        "CreateTargetGroup",
        "RegisterTargets",
        "CreateListener",
        "DeleteListener",
        "DeleteTargetGroup",
    ];
    assert_eq!(actions(&fixture), expected);
    let world = fixture.aws.world();
    assert_eq!(listeners(&world).into_keys().collect::<Vec<_>>(), [443, 8080]);
    assert_nothing_left_over(&world);
}

/// AWS allows 50 listeners.
#[tokio::test(start_paused = true)]
async fn listeners_are_removed_first_only_where_old_and_new_ones_together_are_too_many() {
    for (ports, first) in [(49, "CreateListener"), (50, "DeleteListener")] {
        let fixture = fixture();
        fixture.change(|service| {
            let all = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
            let one = all[0].clone();
            all.clear();
            all.extend((0..ports).map(|n| {
                let mut port = one.clone();
                (port.name, port.port, port.node_port) = (Some(format!("p{n}")), 8000 + n, Some(30000 + n));
                port
            }));
        });
        let fixture = settle(fixture).await;
        port(&fixture, 0, |port| port.port = 9000);
        fixture.settle().await;
        let changes = actions(&fixture).into_iter();
        let mut changes = changes.filter(|action| action.ends_with("Listener"));
        assert_eq!(changes.next().as_deref(), Some(first), "{ports} ports");
        assert_eq!(changes.count(), 1);
        assert_eq!(listeners(&fixture.aws.world()).len(), usize::try_from(ports).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_group_that_another_load_balancer_uses_is_neither_used_nor_deleted() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let mut other = balancer(world).clone();
        (other.described.arn, other.described.name) = ("arn:other".into(), "other".into());
        world.network.load_balancers.insert("arn:other".into(), other);
        let mut all = world.network.listeners.values_mut();
        let taken = all.find(|listener| listener.settings.port == 80).unwrap();
        taken.load_balancer = "arn:other".into();
    });
    fixture.annotate("seen", "1");
    let error = fixture.sync().await.unwrap_err();
    assert!(
        matches!(error, Error::Environment(Environment::TargetGroupTaken { .. })),
        "{error}"
    );
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn ports_that_change_places_get_each_its_own_target_group() {
    let fixture = settled().await;
    port(&fixture, 0, |port| port.node_port = Some(30443));
    port(&fixture, 1, |port| port.node_port = Some(30080));
    fixture.settle().await;
    let world = fixture.aws.world();
    assert_eq!(behind(&world, 80).described.port, 30443);
    assert_eq!(behind(&world, 443).described.port, 30080);
    assert_nothing_left_over(&world);
}

#[tokio::test(start_paused = true)]
async fn a_target_group_that_someone_has_changed_is_made_again_under_its_name() {
    let fixture = settled().await;
    fixture.allow_gaps("AWS changes no interval, and has one target group of a name");
    fixture.aws.change(|world| {
        for group in world.network.target_groups.values_mut() {
            group.described.health_check.interval = 60;
        }
    });
    fixture.annotate("seen", "1");
    fixture.settle().await;
    let world = fixture.aws.world();
    assert_eq!(behind(&world, 80).described.health_check.interval, 30);
    assert_nothing_left_over(&world);
}

#[tokio::test(start_paused = true)]
async fn nodes_join_when_ready_and_before_others_leave() {
    let fixture = settled().await;
    fixture.node("i-3", false);
    fixture.node("i-2", false);
    fixture.settle().await;
    assert_eq!(
        fixture.aws.writes(),
        Vec::<String>::new(),
        "not Ready is no reason to come or go"
    );
    more_nodes(&fixture, 100..104);
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.node("i-3", true);
    fixture.drop_node("i-2");
    fixture.sync().await.unwrap();
    let writes = fixture.aws.writes();
    let at = |text: &str| writes.iter().position(|write| write.contains(text)).unwrap();
    assert!(
        at("i-3:30080") < at("i-2:30080") && at("i-3:30443") < at("i-2:30443"),
        "{writes:?}"
    );
    assert_eq!(targets(&behind(&fixture.aws.world(), 443)).len(), 6);
}

/// Ready nodes with these numbers, and their instances.
fn more_nodes(fixture: &Fixture, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let id = format!("i-{number}");
        let instance = super::super::fixture::instance(&id);
        fixture.aws.change(|world| {
            world.instances.insert(InstanceId::new(id.as_str()), instance);
        });
        fixture.node(&id, true);
    }
}

#[tokio::test(start_paused = true)]
async fn targets_of_a_full_group_are_deregistered_first() {
    let fixture = settled().await;
    fixture.aws.change(|world| world.quotas.targets_per_group = 2);
    fixture.node("i-3", true);
    fixture.drop_node("i-2");
    fixture.sync().await.unwrap();
    let seen = || targets(&behind(&fixture.aws.world(), 80));
    assert_eq!(
        seen(),
        ["i-1:30080", "i-2:30080"],
        "the loss of half of the targets waits for a second look"
    );
    tokio::time::advance(CONFIRMATION).await;
    fixture.settle().await;
    assert_eq!(seen(), ["i-1:30080", "i-3:30080"]);
}

#[tokio::test(start_paused = true)]
async fn a_sudden_loss_waits_and_so_does_a_new_target_group() {
    let fixture = settled().await;
    let before = clients(&fixture, "30080");
    assert_eq!(before.len(), 1);
    fixture.drop_node("i-1");
    fixture.drop_node("i-2");
    port(&fixture, 0, |port| port.node_port = Some(31080));
    fixture.sync().await.unwrap();
    let kept = behind(&fixture.aws.world(), 80);
    assert_eq!(targets(&kept), ["i-1:30080", "i-2:30080"]);
    assert_eq!(clients(&fixture, "30080"), before, "the targets still serve");
    tokio::time::advance(CONFIRMATION).await;
    fixture.settle().await;
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), Vec::<String>::new());
    assert_eq!(targets(&behind(&fixture.aws.world(), 443)), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn targets_are_sent_in_calls_of_a_hundred() {
    let fixture = fixture();
    fixture.aws.change(|world| world.quotas.targets_per_zone = 1000);
    more_nodes(&fixture, 100..350);
    fixture.settle().await;
    let registered = actions(&fixture).iter().filter(|a| *a == "RegisterTargets").count();
    assert_eq!(registered, 6, "three calls for each of two ports");
    assert_eq!(behind(&fixture.aws.world(), 80).targets.len(), 252);
}

#[tokio::test(start_paused = true)]
async fn local_traffic_is_checked_at_its_own_port() {
    let fixture = settled().await;
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        spec.external_traffic_policy = Some("Local".into());
        spec.health_check_node_port = Some(32000);
    });
    fixture.settle().await;
    let world = fixture.aws.world();
    let check = behind(&world, 80).described.health_check;
    let seen = json!([check.protocol, check.port, check.path, check.interval]);
    assert_eq!(seen, json!(["HTTP", "32000", "/healthz", 10]));
    assert!(rules(&world, "sg-node").contains(&format!("tcp/32000-32000<-10.0.1.0/24 {HEALTH}")));
    assert_nothing_left_over(&world);
}

#[tokio::test(start_paused = true)]
async fn a_target_group_in_use_blocks_no_other_port() {
    let fixture = settled().await;
    let old = behind(&fixture.aws.world(), 80).described.arn;
    fixture.aws.change(|world| _ = world.lingering.insert(old, 1));
    for at in 0..2 {
        port(&fixture, at, |port| port.protocol = Some("UDP".into()));
    }
    fixture.annotate("healthcheck-port", "8080");
    let error = fixture.sync().await.unwrap_err();
    assert!(matches!(error, Error::TargetGroupInUse { .. }), "{error}");
    assert_eq!(protocols(&fixture.aws.world()), ["UDP:80->UDP", "UDP:443->UDP"]);
    fixture.sync().await.unwrap();
    assert_nothing_left_over(&fixture.aws.world());
}
