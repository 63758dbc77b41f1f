//! Puts Services into the queue when they, or the Nodes that are their targets, have changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use outrigger_aws::InstanceId;

use super::super::action::{ServiceAction, action};
use super::super::context::Context;
use super::super::plan::targets::{Candidate, candidates, likely};
use super::super::spec::annotations::node_labels;
use super::super::spec::names::{namespaced_name, uid};
use super::super::spec::request;
use super::keyed::Class;
use super::service_state::{ServiceState, hash_of};
use super::{WorkQueue, class_of};

/// The Service that a key names; `None` if there is none any more.
pub fn of_key(services: &Store<Service>, key: &str) -> Option<Arc<Service>> {
    let (namespace, name) = key.split_once('/')?;
    services.get(&ObjectRef::new(name).within(namespace))
}

/// Adds each Service that has changed, and looks at all of them when they have been listed: after a start, and after a broken
/// watch. Each event of `events` is in `services` already. A Service that is gone is not added, see
/// [`super::super::orphans`].
pub async fn services(
    context: &Context,
    queue: &WorkQueue,
    services: &Store<Service>,
    events: impl Stream<Item = watcher::Result<Event<Service>>>,
) {
    let key = |service: &Service, is_listed| {
        let class = |state: &ServiceState| class_of(service, state, is_listed);
        let class = context.states.with(uid(service), class)?;
        Some((namespaced_name(service), class))
    };

    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(service)) => queue.add(key(&service, false)),
            Ok(Event::InitDone) => {
                let listed = services.state();
                queue.add(listed.iter().filter_map(|service| key(service, true)));
                context.aws.shared.many_wait();
            }
            Ok(Event::Init | Event::InitApply(_) | Event::Delete(_)) => {}
            Err(error) => tracing::warn!(%error, "watch of Services failed; restarting it"),
        }
    }
}

/// Adds the Services that may have other targets, at each item of `changes`.
pub async fn nodes(context: &Context, queue: &WorkQueue, services: &Store<Service>, changes: impl Stream<Item = ()>) {
    let mut changes = pin!(changes);
    while changes.next().await.is_some() {
        context.node_sync.nodes_changed();
        // Before the states: a turn that ends meanwhile has written what it knew of the Nodes.
        let running = queue.running();
        queue.add(concerned(context, &services.state(), &running));
        context.aws.shared.many_wait();
    }
}

/// The Services that may have other targets with the Nodes of now, and why. A Service that has a turn may have begun with
/// Nodes from before. One that was never reconciled, or has no load balancer, waits for its turn anyway.
pub fn concerned(context: &Context, services: &[Arc<Service>], running: &BTreeSet<String>) -> Vec<(String, Class)> {
    let mut targets = LikelyTargets::new(context);
    let mut concerned = Vec::new();
    for service in services {
        if action(service) != ServiceAction::Ensure {
            continue;
        }

        let key = namespaced_name(service);
        let (is_running, has_address) = (running.contains(&key), request::kind_in_status(service).is_some());
        let labels = node_labels(service);
        let class = context.states.with(uid(service), |state| {
            let has_targets = state.spec().is_some() && (state.done.is_some() || has_address);
            if !has_targets && !is_running {
                return None;
            }

            let likely = targets.of(labels, &state.targets);
            let is_settled = state.done.as_ref().is_some_and(|done| done.targets == likely.hash);
            let class = if likely.is_less {
                Class::Deregister
            } else {
                Class::Register
            };
            (!is_settled || is_running).then_some(class)
        });
        concerned.extend(class.map(|class| (key, class)));
    }

    concerned
}

#[derive(Debug, Clone, Copy)]
struct Likely {
    /// By [`hash_of`].
    hash: u64,
    /// Whether a target is not among them.
    is_less: bool,
}

type Targets = Arc<BTreeSet<InstanceId>>;

/// The likely targets of Services with the Nodes of one moment. Thousands of Services may have the same labels and
/// targets, and thousands of targets each: that is computed once.
struct LikelyTargets<'a> {
    context: &'a Context,
    by_labels: HashMap<BTreeMap<String, String>, ByTargets>,
}

struct ByTargets {
    candidates: Vec<Candidate>,
    /// By the address of the set, which stays the same while the set is held here: equal sets of several Services are one,
    /// see [`super::service_state::ServiceStates::share`]. Empty ones are not, and have no address here.
    known: HashMap<*const BTreeSet<InstanceId>, (Targets, Likely)>,
}

impl<'a> LikelyTargets<'a> {
    fn new(context: &'a Context) -> Self {
        let by_labels = HashMap::new();
        Self { context, by_labels }
    }

    fn of(&mut self, labels: BTreeMap<String, String>, targets: &Targets) -> Likely {
        let nodes = &self.context.nodes;
        let by_targets = self.by_labels.entry(labels).or_insert_with_key(|labels| ByTargets {
            candidates: candidates(&nodes.snapshot(), labels),
            known: HashMap::new(),
        });
        let candidates = &by_targets.candidates;
        let address = if targets.is_empty() {
            std::ptr::null()
        } else {
            Arc::as_ptr(targets)
        };
        let known = by_targets.known.entry(address);
        let (_, likely) = known.or_insert_with(|| {
            let likely = likely(candidates, targets);
            let likely = Likely {
                hash: hash_of(&likely),
                is_less: !targets.is_subset(&likely),
            };
            (Arc::clone(targets), likely)
        });

        *likely
    }
}
