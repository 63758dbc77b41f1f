//! Two Services share Nodes in several security groups, exchange node ports, and meet small quotas: no write cuts a
//! connection that the specs permit.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::fake::quotas::Quotas;
use outrigger_leader::Permit;
use proptest::prelude::*;

use super::super::super::settings::{Quota, Settings};
use super::super::fixture::Fixture;
use super::case::{PAUSE, populate};
use super::cluster::{NodeState, base, nodes};
use super::run::{Verdict, run};
use super::specs::{Kind, Wish, wishes};

const NEIGHBOUR: &str = "b2345678-1234-1234-1234-123456789abc";

/// Both specs and the Nodes from some moment on.
#[derive(Debug, Clone)]
struct Change {
    wishes: [Wish; 2],
    nodes: Vec<NodeState>,
    /// The second Service is reconciled first.
    is_reversed: bool,
}

#[derive(Debug, Clone)]
struct Case {
    quotas: Quotas,
    changes: Vec<Change>,
}

/// Annotations that need nothing of AWS but what the quotas count.
const ANNOTATIONS: [&str; 4] = [
    "type",
    "target-node-labels",
    "healthcheck-port",
    "cross-zone-load-balancing-enabled",
];

/// A Service that may be met by every quota; the node ports are set later.
fn plain(kind: Kind) -> impl Strategy<Value = Wish> {
    wishes(kind).prop_map(|wish| {
        let annotations = wish
            .annotations
            .into_iter()
            .filter(|(key, _)| ANNOTATIONS.contains(key));
        Wish {
            annotations: annotations.collect::<BTreeMap<_, _>>(),
            affinity: "None",
            odd: false,
            ..wish
        }
    })
}

fn change(kinds: [Kind; 2]) -> impl Strategy<Value = Change> {
    let node_ports = Just((30080..30086).collect::<Vec<i32>>()).prop_shuffle();
    let wishes = (plain(kinds[0]), plain(kinds[1]));
    (wishes, node_ports, nodes(), any::<bool>()).prop_map(|((first, second), node_ports, nodes, is_reversed)| {
        let (mut wishes, mut free) = ([first, second], node_ports.into_iter());
        for wish in &mut wishes {
            for (_, node_port, _) in &mut wish.ports {
                *node_port = free.next().unwrap_or_default();
            }
        }
        Change {
            wishes,
            nodes,
            is_reversed,
        }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let kind = || prop_oneof![Just(Kind::Classic), Just(Kind::Network)];
    let quotas =
        (7..16_usize, 2..9_usize, 1..5_usize).prop_map(|(rules, targets_per_zone, targets_per_group)| Quotas {
            rules,
            targets_per_zone,
            targets_per_group,
            ..Quotas::default()
        });
    (kind(), kind(), quotas).prop_flat_map(|(first, second, quotas)| {
        let changes = prop::collection::vec(change([first, second]), 2..5);
        changes.prop_map(move |changes| Case { quotas, changes })
    })
}

fn ask(service: &mut Service, wish: &Wish) {
    let asked = wish.service();
    service.spec = asked.spec;
    service.metadata.annotations = asked.metadata.annotations;
}

async fn keep_connections(case: &Case) -> Verdict {
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        rules_quota: Quota {
            rules: case.quotas.rules,
            enforced: false,
        },
        ..Settings::default()
    };
    let mut world = base();
    world.quotas = case.quotas;
    let fixture = Fixture::with(world, settings, Permit::always());
    let mut neighbour = fixture.service();
    (neighbour.metadata.uid, neighbour.metadata.name) = (Some(NEIGHBOUR.into()), Some("beside".into()));
    fixture.api.neighbours.lock().unwrap().push(neighbour);

    for change in &case.changes {
        populate(&fixture, &change.nodes);
        fixture.change(|service| ask(service, &change.wishes[0]));
        ask(&mut fixture.api.neighbours.lock().unwrap()[0], &change.wishes[1]);

        for turn in 0..6 {
            let cuts = fixture.cuts_of_a_swap(async {
                // A refusal by a quota is a failure.
                let _ = match (turn % 2 == 0) ^ change.is_reversed {
                    true => fixture.sync().await,
                    false => fixture.sync_neighbour(0).await,
                };
            });
            let cuts = cuts.await;
            prop_assert!(cuts.is_empty(), "{:#?}", (cuts, fixture.aws.writes()));
            tokio::time::advance(PAUSE).await;
        }
    }

    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn quotas_cut_no_connection_of_two_services(case in cases()) {
        run(keep_connections(&case))?;
    }
}
