//! Killed at any write, a restarted process reaches the same end: nothing twice, nothing left over.

use super::super::fixture::Fixture;
use super::deletion::{delete, is_clean};
use super::*;

/// Runs `change` on a cluster, dying at the `k`-th AWS write for each `k`, and compares the ends.
async fn survives(prepared: bool, change: impl Fn(&Fixture)) {
    let start = || async {
        let fixture = managed();
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
    let creations = |fixture: &Fixture| actions(fixture).iter().filter(|a| a.starts_with("Create")).count();
    let writes = undisturbed.aws.writes().len();
    assert!(writes > 0, "the change has no effect");
    for k in 1..=writes {
        let mut fixture = start().await;
        fixture.aws.die_at_write(k);
        while fixture.sync().await.is_ok() && fixture.aws.writes().len() < k {
            tokio::time::advance(std::time::Duration::from_secs(60)).await;
        }
        fixture.restart();
        fixture.settle().await;
        assert_eq!(essence(fixture.aws.world()), end, "killed at write {k} of {writes}");
        assert_eq!(
            creations(&fixture),
            creations(&undisturbed),
            "killed at write {k}: made twice"
        );
    }
}

fn ports(fixture: &Fixture, change: impl Fn(&mut Vec<k8s_openapi::api::core::v1::ServicePort>)) {
    fixture.change(|service| change(service.spec.as_mut().unwrap().ports.as_mut().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn creation_survives_a_kill_at_every_write() {
    survives(false, |fixture| {
        fixture.annotate("target-group-attributes", "proxy_protocol_v2.enabled=true");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_ports_checks_and_clients_survives_a_kill_at_every_write() {
    survives(true, |fixture| {
        fixture.annotate("healthcheck-interval", "10");
        fixture.annotate("cross-zone-load-balancing-enabled", "true");
        ports(fixture, |ports| {
            ports[0].port = 8080;
            ports[1].node_port = Some(31443);
        });
        fixture.change(|service| {
            service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
        });
        fixture.node("i-3", true);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_protocol_survives_a_kill_at_every_write() {
    survives(true, |fixture| {
        ports(fixture, |ports| {
            ports.iter_mut().for_each(|port| port.protocol = Some("UDP".into()))
        });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deletion_survives_a_kill_at_every_write() {
    survives(true, |fixture| fixture.change(delete)).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_cut_off_and_then_deleted_leaves_nothing() {
    for k in 1..=10 {
        let mut fixture = managed();
        fixture.aws.die_at_write(k);
        assert!(fixture.sync().await.is_err());
        fixture.change(delete);
        fixture.restart();
        fixture.settle().await;
        assert!(is_clean(fixture.aws.world()), "killed at write {k}");
        assert!(fixture.service().metadata.finalizers.unwrap_or_default().is_empty());
    }
}
