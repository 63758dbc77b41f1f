//! One target that AWS does not take keeps no other away.

use std::time::Duration;

use outrigger_aws::ec2::InstanceState;
use outrigger_aws::{Error as AwsError, InstanceId};

use super::super::action::Next;
use super::fixture::{Fixture, LB};
use super::network;

fn set(fixture: &Fixture, id: &str, state: InstanceState) {
    fixture.aws.change(|world| {
        world.instances.get_mut(&InstanceId::new(id)).unwrap().state = Some(state);
    });
}

fn told(fixture: &Fixture) -> Vec<String> {
    let events = fixture.events().into_iter();
    events.filter(|event| event.contains("TargetsRefused")).collect()
}

fn registrations(fixture: &Fixture) -> usize {
    let writes = fixture.aws.writes();
    fixture.aws.forget_calls();
    writes.iter().filter(|write| write.starts_with("Register")).count()
}

/// How long until the next look.
async fn look(fixture: &Fixture) -> Duration {
    match fixture.sync().await.unwrap() {
        Next::After(pause) => pause,
        Next::OnChange => panic!("nobody would try again"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_is_created_without_the_instance_that_does_not_run() {
    let fixture = network::fixture();
    set(&fixture, "i-2", InstanceState::Stopped);
    let pause = look(&fixture).await;
    let targets = |port| network::targets(&network::behind(&fixture.aws.world(), port));
    assert_eq!(
        (targets(80), targets(443)),
        (vec!["i-1:30080".into()], vec!["i-1:30443".into()])
    );
    assert_eq!(registrations(&fixture), 4, "twice for each target group");
    let events = told(&fixture);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].contains("RegisterTargets of i-2: InvalidTarget: "),
        "{events:?}"
    );
    // It is tried again, ever less often, and told no more.
    let mut pauses = vec![pause.as_secs()];
    for _ in 0..4 {
        tokio::time::advance(pause).await;
        pauses.push(look(&fixture).await.as_secs());
        assert_eq!(registrations(&fixture), 2, "once for each target group");
    }
    assert_eq!((pauses, told(&fixture).len()), (vec![5, 10, 20, 40, 80], 1));
    set(&fixture, "i-2", InstanceState::Running);
    fixture.settle().await;
    assert_eq!(targets(80), ["i-1:30080", "i-2:30080"]);
    assert!(
        fixture
            .events()
            .iter()
            .any(|event| event.contains("UpdatedLoadBalancer"))
    );
}

#[tokio::test(start_paused = true)]
async fn where_aws_names_none_each_target_is_tried_alone() {
    let fixture = network::settled().await;
    for id in ["i-3", "i-4"] {
        fixture.aws.change(|world| {
            let mut instance = world.instances[&InstanceId::new("i-1")].clone();
            instance.id = InstanceId::new(id);
            world.instances.insert(instance.id.clone(), instance);
        });
        fixture.node(id, true);
    }
    set(&fixture, "i-4", InstanceState::Stopped);
    let silent = AwsError::answered("RegisterTargets", "InvalidTarget", "one of them");
    fixture.aws.fail_next("RegisterTargets", silent);
    look(&fixture).await;
    let targets = network::targets(&network::behind(&fixture.aws.world(), 80));
    assert_eq!(targets, ["i-1:30080", "i-2:30080", "i-3:30080"]);
    assert_eq!(
        registrations(&fixture),
        3 + 2,
        "alone in one group, and with AWS's word in the other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_gets_the_others() {
    let fixture = Fixture::new(super::fixture::world());
    fixture.node("i-3", true);
    let gone = AwsError::answered(
        "RegisterInstancesWithLoadBalancer",
        "InvalidInstance",
        "i-3 is not valid",
    );
    fixture.aws.fail_next("RegisterInstancesWithLoadBalancer", gone);
    assert_eq!(look(&fixture).await, Duration::from_secs(5));
    let instances = || fixture.aws.world().load_balancers[LB].described.instances.len();
    assert_eq!((instances(), registrations(&fixture), told(&fixture).len()), (2, 2, 1));
    fixture.settle().await;
    assert_eq!(instances(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_listener_is_led_to_a_target_group_that_got_none() {
    let fixture = network::settled().await;
    for id in ["i-1", "i-2"] {
        set(&fixture, id, InstanceState::Stopped);
    }
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(31080));
    for _ in 0..2 {
        // Also when the new group is there already.
        let error = fixture.sync().await.unwrap_err().to_string();
        assert!(error.contains("InvalidTarget"), "{error}");
        let targets = network::targets(&network::behind(&fixture.aws.world(), 80));
        assert_eq!(targets, ["i-1:30080", "i-2:30080"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_aws_does_not_deregister_blocks_no_other() {
    let fixture = network::settled().await;
    let bad = AwsError::answered("DeregisterTargets", "InvalidTarget", "i-2");
    fixture.change(|service| {
        let key = format!("{}target-node-labels", super::super::spec::annotations::PREFIX);
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(key, "pool=none".into());
    });
    look(&fixture).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.aws.fail_next("DeregisterTargets", bad);
    assert_eq!(look(&fixture).await, Duration::from_secs(10));
    let left = network::targets(&network::behind(&fixture.aws.world(), 80));
    assert_eq!((left, told(&fixture).len()), (vec!["i-2:30080".to_owned()], 1));
    look(&fixture).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.settle().await;
    let left = network::targets(&network::behind(&fixture.aws.world(), 80));
    assert_eq!(left, Vec::<String>::new());
}
