//! A case: a Service, the settings, and an AWS that earlier runs, other definitions of the Service and other people
//! have left in some state.

use kube::runtime::watcher::Event;
use outrigger_aws::fake::World;
use outrigger_leader::Permit;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Duration;

use super::super::super::settings::Settings;
use super::super::super::spec::names;
use super::super::fixture::Fixture;
use super::cluster::{Fact, NodeState, base, facts, nodes, settings};
use super::edits::{Edit, edits};
use super::network_edits::{self, NetworkEdit};
use super::specs::{Kind, Wish, wishes};

/// The time between two looks: enough for a sudden loss of targets to count.
pub const PAUSE: Duration = Duration::from_secs(60);

/// Something that a controller has done before, maybe not to its end.
#[derive(Debug, Clone)]
pub struct Past {
    pub wish: Wish,
    pub nodes: Vec<NodeState>,
    pub settings: Settings,
    /// The Service requests no load balancer any more: its resources are deleted.
    pub clean_up: bool,
    /// The write that was the last one.
    pub died_at: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Case {
    pub facts: Vec<Fact>,
    pub past: Vec<Past>,
    pub edits: Vec<Edit>,
    pub network_edits: Vec<NetworkEdit>,
    pub wish: Wish,
    pub nodes: Vec<NodeState>,
    pub settings: Settings,
}

fn past(kind: Kind) -> impl Strategy<Value = Past> {
    let died_at = prop::option::of(1..12_usize);
    let wish = prop_oneof![9 => wishes(kind), 1 => wishes(kind.other())];
    (wish, nodes(), settings(), prop::bool::weighted(0.15), died_at).prop_map(
        |(wish, nodes, settings, clean_up, died_at)| Past {
            wish,
            nodes,
            settings,
            clean_up,
            died_at,
        },
    )
}

/// Cases of a Service that asks for this kind of load balancer.
pub fn cases(kind: Kind) -> impl Strategy<Value = Case> {
    let same_settings = prop::bool::weighted(0.8);
    let of_network = prop::collection::vec(network_edits::edit(), 0..=if kind == Kind::Network { 3 } else { 0 });
    let edits = (edits(), of_network);
    let before = (facts(), prop::collection::vec(past(kind), 0..=2), edits);
    let parts = (before, wishes(kind), nodes(), settings(), same_settings);
    parts.prop_map(|((facts, mut past, edits), wish, nodes, settings, same)| {
        for past in past.iter_mut().filter(|_| same) {
            past.settings = settings.clone();
        }
        let (edits, network_edits) = edits;
        Case {
            facts,
            past,
            edits,
            network_edits,
            wish,
            nodes,
            settings,
        }
    })
}

/// Makes the Service one that asks for `wish`; finalizers and status stay.
pub fn ask(fixture: &Fixture, wish: &Wish) {
    fixture.change(|service| {
        let asked = wish.service();
        service.spec = asked.spec;
        service.metadata.annotations = asked.metadata.annotations;
    });
}

/// Makes these the Nodes of the cluster.
pub fn populate(fixture: &Fixture, nodes: &[NodeState]) {
    for id in super::cluster::NODES {
        fixture.drop_node(id);
    }
    for node in nodes {
        let mut labels = serde_json::Map::new();
        if node.pool {
            labels.insert("pool".into(), json!("web"));
        }
        if node.excluded {
            labels.insert(
                "node.kubernetes.io/exclude-from-external-load-balancers".into(),
                json!(""),
            );
        }
        let ready = if node.ready { "True" } else { "False" };
        let object = json!({
            "metadata": {"name": node.id, "labels": labels},
            "spec": {"providerID": format!("aws:///eu-central-1a/{}", node.id)},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        fixture
            .nodes
            .observe(Event::Apply(serde_json::from_value(object).unwrap()));
    }
}

/// Gives the Service its finalizer, which comes before all that there is of it at AWS.
fn hold(fixture: &Fixture) {
    fixture.change(|service| {
        let finalizers = service.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == names::FINALIZER) {
            finalizers.push(names::FINALIZER.to_owned());
        }
    });
}

/// Deletes the Service, or turns it into one without a load balancer.
pub fn give_up(fixture: &Fixture, by_type: bool) {
    hold(fixture);
    fixture.change(|service| {
        if by_type {
            service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
        } else {
            service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
    });
}

impl Case {
    /// The account without anything of the Service.
    pub fn virgin(&self) -> World {
        let mut world = base();
        self.facts.iter().for_each(|fact| fact.apply(&mut world));
        world
    }

    fn fixture(&self, world: World) -> Fixture {
        Fixture::with(world, self.settings.clone(), Permit::always())
    }

    /// A controller that has just started, in an account that has nothing of the Service.
    pub fn untouched(&self) -> Fixture {
        let fixture = self.fixture(self.virgin());
        ask(&fixture, &self.wish);
        populate(&fixture, &self.nodes);
        fixture
    }

    /// Whether there is more of the Service than a controller looks for that has never seen it: a target group that
    /// nothing uses, or nodes' rules which a controller has left that was told to keep its hands off them.
    fn has_leftovers(&self) -> bool {
        let mut edits = self.network_edits.iter();
        let mut past = self.past.iter();
        edits.any(|edit| matches!(edit, NetworkEdit::Orphan))
            || past.any(|past| past.clean_up && past.settings.disable_security_group_ingress)
    }

    /// A controller that has just started, in an account with the case's past.
    pub async fn stage(&self) -> Fixture {
        let mut fixture = self.fixture(self.virgin());
        for past in &self.past {
            fixture.settings = past.settings.clone();
            fixture.restart();
            ask(&fixture, &past.wish);
            populate(&fixture, &past.nodes);
            if past.clean_up {
                give_up(&fixture, true);
            }
            if let Some(write) = past.died_at {
                fixture.aws.die_at_write(write);
            }
            for _ in 0..4 {
                // A failure is part of the past.
                let _ = fixture.sync().await;
                tokio::time::advance(PAUSE).await;
            }
            fixture.aws.revive();
        }
        fixture.aws.change(|world| {
            self.edits.iter().for_each(|edit| edit.apply(world));
            self.network_edits.iter().for_each(|edit| edit.apply(world));
        });
        if self.has_leftovers() {
            hold(&fixture);
        }
        fixture.settings = self.settings.clone();
        fixture.restart();
        ask(&fixture, &self.wish);
        populate(&fixture, &self.nodes);
        fixture.aws.forget_calls();
        fixture
    }
}
