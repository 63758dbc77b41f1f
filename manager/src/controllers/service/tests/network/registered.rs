//! Instances that count as registered targets. Another instance joins only when its Node is Ready, so a registered
//! target that did not count would be removed.

use std::collections::BTreeSet;
use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::TargetGroup;

use super::super::super::model::network::{Existing, Group, Observed};
use super::super::super::queue::service_state::CONFIRMATION;
use super::*;

fn group(instance: &str, used_by: &[&str]) -> Group {
    let target = Target {
        id: InstanceId::new(instance),
        port: 30080,
    };
    Group {
        described: TargetGroup {
            load_balancers: used_by.iter().map(|arn| (*arn).to_owned()).collect(),
            ..TargetGroup::default()
        },
        targets: BTreeSet::from([target]),
        ..Group::default()
    }
}

#[test]
fn targets_of_groups_in_use_and_of_groups_that_nothing_uses_count_and_those_of_others_do_not() {
    let existing = Existing {
        groups: vec![group("i-1", &["ours"])],
        ..Existing::default()
    };
    let observed = Observed {
        load_balancer: Some(existing),
        spare: vec![group("i-2", &[]), group("i-3", &["another"])],
        ..Observed::default()
    };
    assert_eq!(
        observed.registered(),
        BTreeSet::from(["i-1", "i-2"].map(InstanceId::new))
    );
}

/// AWS deletes the listener before it makes the next one: for a moment no target group is the load balancer's.
#[tokio::test(start_paused = true)]
async fn a_target_that_is_not_ready_stays_one_when_the_change_of_its_only_listener_is_cut_off() {
    let ports = |fixture: &Fixture, change: fn(&mut Vec<k8s_openapi::api::core::v1::ServicePort>)| {
        fixture.change(|service| change(service.spec.as_mut().unwrap().ports.as_mut().unwrap()));
    };
    let start = || async {
        let fixture = fixture();
        ports(&fixture, |ports| ports.truncate(1));
        let fixture = settle(fixture).await;
        fixture.node("i-2", false);
        ports(&fixture, |ports| ports[0].protocol = Some("UDP".into()));
        fixture
    };
    let undisturbed = start().await;
    undisturbed.settle().await;
    let all = actions(&undisturbed);
    assert!(all.iter().any(|action| action == "DeleteListener"), "{all:?}");
    for k in 1..=all.len() {
        let mut fixture = start().await;
        fixture.aws.die_at_write(k);
        while fixture.sync().await.is_ok() && fixture.aws.writes().len() < k {
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        fixture.restart();
        fixture.settle().await;
        let (now, done) = (targets(&behind(&fixture.aws.world(), 80)), actions(&fixture));
        assert_eq!(now, ["i-1:30080", "i-2:30080"], "killed at write {k} of {all:?}");
        let left = done.iter().filter(|action| *action == "DeregisterTargets").count();
        assert_eq!(left, 0, "killed at write {k}: {done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_on_its_way_out_is_none_and_comes_back_with_its_node() {
    let fixture = settled().await;
    fixture.drop_node("i-2");
    fixture.sync().await.unwrap();
    tokio::time::advance(CONFIRMATION).await;
    fixture.sync().await.unwrap();
    let draining = behind(&fixture.aws.world(), 80).draining;
    assert_eq!(draining.len(), 1, "AWS still lists it");
    fixture.aws.forget_calls();
    fixture.node("i-2", true);
    fixture.sync().await.unwrap();
    assert_eq!(actions(&fixture), ["RegisterTargets", "RegisterTargets"]);
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30080", "i-2:30080"]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_someone_registered_with_another_port_leaves_by_that_port_only() {
    let fixture = settled().await;
    let before = fixture.aws.world();
    fixture.aws.change(|world| {
        for group in world.network.target_groups.values_mut() {
            group.targets.insert(Target {
                id: InstanceId::new("i-1"),
                port: 9999,
            });
        }
    });
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["DeregisterTargets", "DeregisterTargets"]);
    for port in [80, 443] {
        assert_eq!(
            targets(&behind(&fixture.aws.world(), port)),
            targets(&behind(&before, port))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_no_more_stays_a_target_and_joins_no_other_group() {
    let fixture = settled().await;
    terminate(&fixture, "i-2");
    fixture.change(|service| {
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        let mut more = ports[0].clone();
        (more.name, more.port, more.node_port) = (Some("more".into()), 8080, Some(30090));
        ports.push(more);
    });
    // Answers about instances are used for no longer than this.
    tokio::time::advance(Duration::from_secs(600)).await;
    fixture.settle().await;
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30080", "i-2:30080"]);
    assert_eq!(targets(&behind(&fixture.aws.world(), 8080)), ["i-1:30090"]);
    assert!(
        fixture.events().iter().all(|event| !event.contains("TargetsRefused")),
        "{:?}",
        fixture.events()
    );
}

/// Other targets join its groups, and another target group is created and deleted.
#[tokio::test(start_paused = true)]
async fn what_is_open_for_a_terminated_instance_stays_open_as_long_as_it_is_a_target() {
    let fixture = fixture();
    own_group_of(&fixture, "i-2", "sg-other");
    let fixture = settle(fixture).await;
    let open = |port: u16| format!("tcp/{port}-{port}<-0.0.0.0/0 {CLIENT}");
    let before = rules(&fixture.aws.world(), "sg-other");
    assert!(
        before.contains(&open(30080)) && before.contains(&open(30443)),
        "{before:?}"
    );
    terminate(&fixture, "i-2");
    fixture.node("i-3", true);
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[1].node_port = Some(30444));
    // Answers about instances are used for no longer than this.
    tokio::time::advance(Duration::from_secs(600)).await;
    fixture.settle().await;
    assert_eq!(
        targets(&behind(&fixture.aws.world(), 80)),
        ["i-1:30080", "i-2:30080", "i-3:30080"]
    );
    assert_eq!(targets(&behind(&fixture.aws.world(), 443)), ["i-1:30444", "i-3:30444"]);
    let after = rules(&fixture.aws.world(), "sg-other");
    assert!(after.contains(&open(30080)), "{after:?}");
    let closed = |write: &String| write.starts_with("RevokeSecurityGroupIngress sg-other") && write.contains("30080");
    assert!(!fixture.aws.writes().iter().any(closed), "{:?}", fixture.aws.writes());
}

/// Somebody has registered it with another port, and AWS takes it with no other one any more.
#[tokio::test(start_paused = true)]
async fn nothing_is_opened_for_an_instance_that_is_no_more_and_leaves() {
    // With one port it leaves its only target group.
    for ports in [1, 2] {
        let fixture = fixture();
        fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(ports));
        own_group_of(&fixture, "i-2", "sg-other");
        fixture.drop_node("i-2");
        let mut fixture = settle(fixture).await;
        terminate(&fixture, "i-2");
        fixture.aws.change(|world| {
            for group in world.network.target_groups.values_mut() {
                let id = InstanceId::new("i-2");
                group.targets.insert(Target { id, port: 9 });
            }
        });
        fixture.node("i-2", false);
        fixture.restart();
        fixture.settle().await;
        assert_eq!(actions(&fixture), vec!["DeregisterTargets"; ports]);
        assert_eq!(rules(&fixture.aws.world(), "sg-other"), [""; 0]);
    }
}

/// Somebody leads the listener to a group of their own, and the Service changes its protocol, which needs another
/// listener.
#[tokio::test(start_paused = true)]
async fn a_group_that_nothing_uses_any_more_stays_until_a_loss_of_its_targets_is_confirmed() {
    let fixture = fixture();
    fixture.node("i-3", true);
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    let mut fixture = settle(fixture).await;
    lead_by_hand(&fixture, 80);
    fixture.drop_node("i-3");
    fixture.node("i-2", false);
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].protocol = Some("UDP".into()));
    fixture.restart();
    fixture.sync().await.unwrap();
    let waiting = actions(&fixture);
    assert!(
        !waiting.iter().any(|action| action.starts_with("Delete")),
        "{waiting:?}"
    );
    tokio::time::advance(CONFIRMATION).await;
    fixture.settle().await;
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30080", "i-2:30080"]);
    assert_eq!(group_names(&fixture.aws.world()), [BY_HAND, "own"]);
}

/// Somebody takes a target out of one group, and the Service loses the port of the other while it moves the first.
#[tokio::test(start_paused = true)]
async fn the_group_of_a_port_that_is_taken_away_stays_until_a_loss_of_its_targets_is_confirmed() {
    let fixture = fixture();
    fixture.node("i-3", true);
    let mut fixture = settle(fixture).await;
    fixture.aws.change(|world| {
        let arn = behind(world, 80).described.arn;
        let group = world.network.target_groups.get_mut(&arn).unwrap();
        group.targets.retain(|target| target.id != InstanceId::new("i-2"));
    });
    fixture.drop_node("i-3");
    fixture.node("i-2", false);
    fixture.change(|service| {
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        ports.truncate(1);
        ports[0].node_port = Some(30081);
    });
    fixture.restart();
    fixture.sync().await.unwrap();
    let waiting = actions(&fixture);
    assert!(waiting.contains(&"DeleteListener".to_owned()), "{waiting:?}");
    assert!(!waiting.contains(&"DeleteTargetGroup".to_owned()), "{waiting:?}");
    tokio::time::advance(CONFIRMATION).await;
    fixture.settle().await;
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30081", "i-2:30081"]);
    assert_eq!(
        fixture.aws.world().network.target_groups.len(),
        1,
        "the others are gone"
    );
}

#[tokio::test(start_paused = true)]
async fn the_group_of_a_port_that_is_taken_away_is_deleted_at_once_if_its_staying_targets_are_in_another_one() {
    let fixture = settled().await;
    fixture.drop_node("i-2");
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    fixture.sync().await.unwrap();
    let writes = actions(&fixture);
    let deleted: Vec<&String> = writes.iter().filter(|action| action.starts_with("Delete")).collect();
    assert_eq!(deleted, ["DeleteListener", "DeleteTargetGroup"]);
    assert_eq!(
        targets(&behind(&fixture.aws.world(), 80)),
        ["i-1:30080", "i-2:30080"],
        "the loss is unconfirmed"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_open_for_an_instance_that_is_no_more_is_closed_when_its_last_target_group_goes() {
    let fixture = fixture();
    own_group_of(&fixture, "i-2", "sg-other");
    let fixture = settle(fixture).await;
    assert!(!rules(&fixture.aws.world(), "sg-other").is_empty());
    terminate(&fixture, "i-2");
    fixture.change(|service| {
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        ports
            .iter_mut()
            .for_each(|port| port.node_port = port.node_port.map(|port| port + 1));
    });
    // Answers about instances are used for no longer than this.
    tokio::time::advance(Duration::from_secs(600)).await;
    fixture.settle().await;
    assert_eq!(targets(&behind(&fixture.aws.world(), 80)), ["i-1:30081"]);
    assert_eq!(rules(&fixture.aws.world(), "sg-other"), [""; 0]);
}

/// A target group of an earlier process has more targets than the one in use, and the first full observation fails, so
/// that only the targets of the group in use are observed.
#[tokio::test(start_paused = true)]
async fn a_loss_of_several_groups_is_confirmed_though_not_all_of_it_is_seen_at_each_look() {
    let fixture = fixture();
    fixture.drop_node("i-1");
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    let mut fixture = settle(fixture).await;
    fixture.aws.change(|world| {
        let mut left = behind(world, 80);
        left.described.name = "k8s-default-web-0123456789".into();
        left.described.arn = format!(
            "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/{}/1",
            left.described.name
        );
        left.described.load_balancers.clear();
        for id in ["i-1", "i-3"].map(InstanceId::new) {
            left.targets.insert(Target { id, port: 30080 });
        }
        world.network.target_groups.insert(left.described.arn.clone(), left);
    });
    fixture.drop_node("i-2");
    fixture.node("i-1", false);
    fixture.annotate("healthcheck-protocol", "HTTP");
    fixture.change(|service| {
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
    });
    fixture.restart();
    let error = outrigger_aws::Error::answered("AuthorizeSecurityGroupIngress", "AccessDenied", "no");
    fixture.aws.fail_next("AuthorizeSecurityGroupIngress", error);
    fixture.sync().await.unwrap_err();
    for _ in 0..3 {
        tokio::time::advance(CONFIRMATION).await;
        fixture.sync().await.unwrap();
    }
    let group = behind(&fixture.aws.world(), 80);
    assert_eq!(
        (group.described.health_check.protocol.as_str(), targets(&group)),
        ("HTTP", vec!["i-1:30080".to_owned()])
    );
    assert_eq!(group_names(&fixture.aws.world()), ["own"]);
}
