//! Killed at any write, a restarted process reaches the same end: nothing twice, nothing left over.

use outrigger_aws::fake::World;
use serde_json::json;

use super::fixture::{Fixture, LB, world};

/// The world without the numbering of groups, and with the rules of groups in one order.
fn essence(mut world: World) -> World {
    for group in world.security_groups.values_mut() {
        group.ingress.sort_by_key(|rule| format!("{rule:?}"));
    }
    world
}

/// Runs `change` on a settled cluster, dying at the `k`-th AWS write for each `k`, and compares the ends.
async fn survives(change: impl Fn(&Fixture), prepared: bool) {
    let start = || async {
        let fixture = Fixture::new(world());
        if prepared {
            fixture.settle().await;
        }
        fixture.aws.forget_calls();
        change(&fixture);
        fixture
    };
    let undisturbed = start().await;
    undisturbed.settle().await;
    let end = essence(undisturbed.aws.world());
    let writes = undisturbed.aws.writes().len();
    assert!(writes > 0, "the change has no effect");
    for k in 1..=writes {
        let mut fixture = start().await;
        fixture.aws.die_at_write(k);
        assert!(fixture.sync().await.is_err() || k == writes, "write {k} of {writes}");
        fixture.restart();
        fixture.settle().await;
        assert_eq!(essence(fixture.aws.world()), end, "killed at write {k} of {writes}");
        let made = fixture
            .aws
            .writes()
            .iter()
            .filter(|write| write.starts_with("Create"))
            .count();
        let needed = undisturbed
            .aws
            .writes()
            .iter()
            .filter(|write| write.starts_with("Create"))
            .count();
        assert_eq!(made, needed, "killed at write {k}: something was made twice");
    }
}

#[tokio::test(start_paused = true)]
async fn creation_survives_a_kill_at_every_write() {
    survives(|_| {}, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_ports_networks_and_attributes_survives_a_kill_at_every_write() {
    let change = |fixture: &Fixture| {
        fixture.annotate("connection-idle-timeout", "90");
        fixture.annotate("healthcheck-interval", "20");
        fixture.change(|service| {
            let spec = service.spec.as_mut().unwrap();
            spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
            let port = &mut spec.ports.as_mut().unwrap()[0];
            (port.port, port.node_port) = (8080, Some(31080));
        });
        fixture.node("i-3", true);
    };
    survives(change, true).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_survives_a_kill_at_every_write() {
    let delete = |fixture: &Fixture| {
        fixture.change(|service| {
            service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        });
    };
    survives(delete, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_cut_off_and_then_deleted_leaves_nothing() {
    for k in 1..=6 {
        let mut fixture = Fixture::new(world());
        fixture.aws.die_at_write(k);
        assert!(fixture.sync().await.is_err());
        fixture.change(|service| {
            service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        });
        fixture.restart();
        fixture.settle().await;
        let after = fixture.aws.world();
        assert_eq!(
            World {
                groups_made: 0,
                ..after
            },
            world(),
            "killed at write {k}"
        );
        assert!(fixture.service().metadata.finalizers.unwrap_or_default().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_made_without_tags_by_a_provider_that_died_is_tagged_and_used() {
    let fixture = Fixture::new(world());
    fixture.aws.die_at_write(1);
    assert!(fixture.sync().await.is_err());
    fixture.aws.revive();
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-new1").unwrap().tags.clear());
    fixture.aws.forget_calls();
    fixture.settle().await;
    assert_eq!(fixture.aws.writes()[0], "CreateTags sg-new1");
    assert_eq!(
        fixture.aws.world().load_balancers[LB].described.security_groups,
        ["sg-new1"]
    );
}
