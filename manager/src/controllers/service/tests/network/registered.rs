//! Who counts as a target already. What is none yet has to be Ready to join, so that a target which is not counted leaves.

use std::collections::BTreeSet;
use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::TargetGroup;

use super::super::super::network::observe::{Existing, Group, Observed};
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
