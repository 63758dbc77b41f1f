//! Watches, queue and workers together: Services and Nodes change at any moment, also during turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector;
use kube::runtime::watcher::{self, Event};
use outrigger_aws::InstanceId;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::error::Error;
use super::super::queue::keyed::Class;
use super::super::queue::{WorkQueue, node_changes, watch};
use super::super::spec::names;
use super::super::writer::{Found, Writer};
use super::super::{Workers, work};
use super::fixture::{FakeApi, Fixture, exclude, instance, service, world};
use super::properties::run::{Verdict, run};
use crate::events::EventType;

const WORKERS: usize = 2;
const SERVICES: usize = 3;
const NODES: [&str; 5] = ["i-1", "i-2", "i-3", "i-4", "i-5"];

/// Each write to the API server takes this time, and several are made in a turn: Nodes and Services change meanwhile.
const WRITE: Duration = Duration::from_millis(400);
/// The delay of a watch.
const WATCH: Duration = Duration::from_millis(200);

struct Slow(Arc<FakeApi>);

#[async_trait]
impl Writer for Slow {
    async fn patch(&self, of: &Service, operation: &'static str, patch: Value) -> Result<Found, Error> {
        sleep(WRITE).await;
        self.0.patch(of, operation, patch).await
    }

    async fn event(&self, of: &Service, kind: EventType, reason: &'static str, message: &str) {
        sleep(WRITE).await;
        self.0.event(of, kind, reason, message).await;
    }
}

type Events = mpsc::UnboundedSender<watcher::Result<Event<Service>>>;

/// The Services that exist: one that is deleted is gone when it has no finalizer.
fn existing(api: &FakeApi) -> BTreeMap<String, Service> {
    let is_gone = |service: &Service| {
        service.metadata.deletion_timestamp.is_some() && service.metadata.finalizers.iter().flatten().count() == 0
    };
    let services = api.services().into_iter().filter(|service| !is_gone(service));
    services
        .map(|service| (names::uid(&service).to_owned(), service))
        .collect()
}

/// Lists the Services and then tells each change, as a watch does.
async fn tell(api: &FakeApi, events: Events) {
    let send = |event| events.unbounded_send(Ok(event)).unwrap();
    let mut known = existing(api);
    send(Event::Init);
    for service in known.values() {
        send(Event::InitApply(service.clone()));
    }
    send(Event::InitDone);

    loop {
        sleep(WATCH).await;
        let now = existing(api);
        for (uid, service) in &now {
            if known.get(uid) != Some(service) {
                send(Event::Apply(service.clone()));
            }
        }
        for (uid, service) in &known {
            if !now.contains_key(uid) {
                send(Event::Delete(service.clone()));
            }
        }
        known = now;
    }
}

fn numbered(number: usize) -> Service {
    let mut service = service();
    service.metadata.name = Some(format!("web-{number}"));
    service.metadata.uid = Some(format!("{number:08}-1234-1234-1234-123456789abc"));
    let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
    for port in ports {
        let number = i32::try_from(number).unwrap();
        port.node_port = port.node_port.map(|port| port + number);
    }
    service
}

fn cluster() -> Fixture {
    let mut world = world();
    world.instances = NODES.map(|id| (instance(id).id.clone(), instance(id))).into();
    let mut fixture = Fixture::new(world);
    fixture.allow_gaps("a port may be asked for again while the turn before deletes its listener");
    fixture.change(|service| *service = numbered(0));
    let others = (1..SERVICES).map(numbered);
    fixture.api.neighbours.lock().unwrap().extend(others);
    fixture.context.writer = Arc::new(Slow(Arc::clone(&fixture.api)));
    fixture.nodes.observe(Event::Init);
    fixture.nodes.observe(Event::InitDone);
    for id in ["i-1", "i-2", "i-3"] {
        fixture.node(id, true);
    }
    fixture
}

/// Runs the controller while `script` runs.
async fn beside<T>(fixture: &Fixture, script: impl Future<Output = T>) -> T {
    let (sender, receiver) = mpsc::unbounded();
    let (listed, writer) = reflector::store();
    let queue = WorkQueue::new(WORKERS, fixture.metrics.queue("service"));
    let context = &fixture.context;
    let workers = Workers {
        context,
        queue: &queue,
        metrics: fixture.metrics.queue("service"),
        services: listed.clone(),
        stop: CancellationToken::new(),
    };
    let changes = node_changes::relevant(fixture.nodes.clone(), BTreeSet::new);
    let controller = futures::future::join3(
        watch::services(context, &queue, &listed, receiver.reflect(writer)),
        watch::nodes(context, &queue, &listed, changes),
        futures::future::join_all((0..WORKERS).map(|_| work(&workers))),
    );

    tokio::select! {
        _ = controller => panic!("the controller ends at a stop only"),
        () = tell(&fixture.api, sender) => panic!("the watch never ends"),
        result = script => result,
    }
}

#[derive(Debug, Clone)]
enum Change {
    Ready(&'static str, bool),
    Drop(&'static str),
    Exclude(&'static str),
    /// A Service has this number of ports.
    Ports(usize, usize),
    /// A Service requests a load balancer, or none.
    Type(usize, &'static str),
    Delete(usize),
    Wait(u64),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let node = || select(&NODES[..]);
    let change = prop_oneof![
        4 => (node(), any::<bool>()).prop_map(|(id, ready)| Change::Ready(id, ready)),
        2 => node().prop_map(Change::Drop),
        1 => node().prop_map(Change::Exclude),
        3 => (0..SERVICES, 1..3_usize).prop_map(|(at, ports)| Change::Ports(at, ports)),
        3 => (0..SERVICES, select(&["LoadBalancer", "NodePort"][..])).prop_map(|(at, kind)| Change::Type(at, kind)),
        1 => (0..SERVICES).prop_map(Change::Delete),
        6 => (100..4000_u64).prop_map(Change::Wait),
    ];
    prop::collection::vec(change, 1..40)
}

async fn carry_out(fixture: &Fixture, change: Change) {
    let of = |at: usize| numbered(at).metadata.uid;
    match change {
        Change::Ready(id, ready) => fixture.node(id, ready),
        Change::Drop(id) => fixture.drop_node(id),
        Change::Exclude(id) => exclude(fixture, id),
        Change::Ports(at, ports) => fixture.api.change(of(at).as_ref(), |service| {
            let mut all = numbered(at).spec.unwrap().ports;
            all.as_mut().unwrap().truncate(ports);
            service.spec.as_mut().unwrap().ports = all;
        }),
        Change::Type(at, kind) => fixture.api.change(of(at).as_ref(), |service| {
            service.spec.as_mut().unwrap().type_ = Some(kind.to_owned());
        }),
        Change::Delete(at) => fixture.api.change(of(at).as_ref(), |service| {
            service.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }),
        Change::Wait(millis) => sleep(Duration::from_millis(millis)).await,
    }
}

/// Each Service has all Ready Nodes and no Node that is gone or excluded, and its ports; a deleted one has nothing.
fn compare(fixture: &Fixture) -> Verdict {
    let (world, nodes) = (fixture.aws.world(), fixture.nodes.snapshot());
    let is_included = |node: &&Arc<crate::node_cache::NodeView>| {
        node.label("node.kubernetes.io/exclude-from-external-load-balancers")
            .is_none()
    };
    let included: BTreeSet<InstanceId> = nodes
        .iter()
        .filter(is_included)
        .map(|node| InstanceId::new(node.name()))
        .collect();
    let ready: BTreeSet<InstanceId> = nodes
        .iter()
        .filter(|node| is_included(node) && node.is_ready())
        .map(|node| InstanceId::new(node.name()))
        .collect();
    for service in fixture.api.services() {
        let name = names::load_balancer(names::uid(&service));
        let balancer = world.load_balancers.get(&name);
        let is_wanted = service.spec.as_ref().unwrap().type_.as_deref() == Some("LoadBalancer");
        if service.metadata.deletion_timestamp.is_some() || !is_wanted {
            prop_assert!(balancer.is_none(), "{name} is left");
            continue;
        }
        prop_assert!(balancer.is_some(), "{name} is missing");
        let balancer = &balancer.unwrap().described;
        let registered: BTreeSet<InstanceId> = balancer.instances.iter().cloned().collect();
        prop_assert!(
            ready.is_subset(&registered) && registered.is_subset(&included),
            "{name} has {registered:?}; Ready are {ready:?} of {included:?}"
        );
        let wanted: BTreeSet<i32> = service
            .spec
            .unwrap()
            .ports
            .unwrap()
            .iter()
            .map(|port| port.port)
            .collect();
        let ports: BTreeSet<i32> = balancer.listeners.iter().map(|listener| listener.port).collect();
        prop_assert_eq!(ports, wanted);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_is_lost_whenever_it_comes(changes in changes()) {
        run(async {
            let fixture = cluster();
            beside(&fixture, async {
                for change in changes {
                    carry_out(&fixture, change).await;
                }
                // Longer than the confirmation of a loss, and the backoff of a failed deletion.
                sleep(Duration::from_secs(120)).await;
                compare(&fixture)?;

                // Nothing is left to do, and the next drift repair is due after 27 minutes.
                fixture.aws.forget_calls();
                sleep(Duration::from_secs(600)).await;
                let calls = fixture.aws.calls().len();
                prop_assert_eq!(calls, 0);
                Ok(())
            })
            .await
        })?;
    }
}

async fn settled() -> Fixture {
    let fixture = cluster();
    beside(&fixture, sleep(Duration::from_secs(60))).await;
    compare(&fixture).unwrap();
    fixture
}

fn concerned(fixture: &Fixture, running: &[&str]) -> BTreeSet<(String, Class)> {
    let services: Vec<_> = fixture.api.services().into_iter().map(Arc::new).collect();
    let running = running.iter().map(|key| (*key).to_owned()).collect();
    watch::concerned(&fixture.context, &services, &running)
        .into_iter()
        .collect()
}

fn all(class: Class) -> BTreeSet<(String, Class)> {
    (0..SERVICES)
        .map(|number| (format!("default/web-{number}"), class))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_of_nodes_concerns_services_whose_targets_it_changes() {
    let fixture = settled().await;
    assert_eq!(concerned(&fixture, &[]), BTreeSet::new());
    fixture.node("i-1", false);
    fixture.node("i-4", false);
    assert_eq!(
        concerned(&fixture, &[]),
        BTreeSet::new(),
        "a target that is not Ready stays one"
    );
    fixture.node("i-4", true);
    assert_eq!(concerned(&fixture, &[]), all(Class::Register));
    fixture.drop_node("i-2");
    assert_eq!(concerned(&fixture, &[]), all(Class::Deregister));
}

/// A turn knows the Nodes of its beginning.
#[tokio::test(start_paused = true)]
async fn a_change_of_nodes_concerns_a_service_that_has_a_turn() {
    let fixture = settled().await;
    let expected = BTreeSet::from([("default/web-1".to_owned(), Class::Register)]);
    assert_eq!(concerned(&fixture, &["default/web-1"]), expected);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_nodes_concerns_a_service_that_failed_and_none_that_waits_for_its_first_turn() {
    let fixture = cluster();
    fixture.node("i-4", true);
    assert_eq!(concerned(&fixture, &[]), BTreeSet::new());

    let fixture = settled().await;
    let failed = numbered(2).metadata.uid.unwrap();
    fixture.context.states.update(&failed, |state| _ = state.fail());
    let expected = BTreeSet::from([("default/web-2".to_owned(), Class::Register)]);
    assert_eq!(concerned(&fixture, &[]), expected);
}
