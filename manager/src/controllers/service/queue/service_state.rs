//! State of a Service between reconciliations. A new process starts without it. Most of it avoids repeated Events and
//! reads; `had_resources`, confirmed losses, and name and fingerprint also decide what is deleted and which finalizer
//! is removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::api::ObjectMeta;
use outrigger_aws::{InstanceId, Tags};
use outrigger_shared::backoff::doubled;
use tokio::time::Instant;

use super::super::inventory::account::Search;
use super::super::inventory::facts::SharedSets;
pub use super::super::inventory::facts::hash_of;
use super::super::plan::Plan;
use super::super::spec::names::{namespaced_name, uid};
use super::reported::Reported;
use crate::confirmation::{FirstSeen, Seen};

/// First backoff after a failure; it doubles with each further one, as in Kubernetes' service controller.
const FIRST_RETRY: Duration = Duration::from_secs(5);

const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// A sudden loss of targets must be observed for this time before it counts.
pub const CONFIRMATION: Duration = Duration::from_secs(5);

/// A subnet must be unchosen for this time before it is detached: replacing a route table may take that long.
pub const SUBNET_CONFIRMATION: Duration = Duration::from_secs(60);

/// The last success, if no failure has followed.
#[derive(Debug, Clone)]
pub struct Done {
    /// The Nodes that were targets, or would have become one, by [`hash_of`].
    pub targets: u64,
    pub at: Instant,
    pub hostname: String,
}

/// The Service at the last reconciliation that was begun, as far as a deletion of its resources needs it.
#[derive(Debug, Clone)]
pub struct Remembered {
    spec: SpecFingerprint,
    annotations: BTreeMap<String, String>,
}

/// Never copied, see [`ServiceStates::with`].
#[derive(Debug, Default)]
pub struct ServiceState {
    /// `namespace/name`.
    pub name: String,
    service: Option<Remembered>,
    pub done: Option<Done>,
    /// Time of the last successful full observation, with attributes.
    pub last_full: Option<Instant>,
    /// When the first one is due, if an observation without attributes was made before.
    pub first_full: Option<Instant>,
    /// Equal sets of several Services are one set in memory.
    pub targets: Arc<BTreeSet<InstanceId>>,
    /// Targets that look lost, each with the first observation of that.
    gone: FirstSeen<InstanceId>,
    /// Attached subnets that were not chosen, each with the first observation of that.
    unchosen_subnets: FirstSeen<String>,
    pub failures: u32,
    /// Successful reconciliations in a row that left something open.
    pub open: u32,
    /// Whether targets wait for removal, or AWS has refused some: resources that depend on them are removed later.
    pub waiting: bool,
    /// Whether the last reconciliation has done all of its plan, so that what is in memory about the load balancer is right.
    pub is_in_memory: bool,
    pub reported: Reported,
    /// Whether a deletion has found resources: then the finalizer is this controller's.
    pub had_resources: bool,
    /// Since when the deletion finds the load balancer gone and something else left.
    pub balancer_gone: Option<Instant>,
    /// The DNS name of the load balancer, once it is known not to be another cluster's.
    pub owned: Option<String>,
    /// Tags of the annotation that were set on a classic load balancer, for roles that may not read tags.
    pub tags_set: Tags,
    /// Exact names of the Service's target groups since the last success, for roles that may not read tags.
    pub given_names: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct ServiceStates {
    all: Mutex<All>,
    targets: SharedSets,
}

#[derive(Debug, Default)]
struct All {
    by_uid: HashMap<String, ServiceState>,
    /// UIDs by `namespace/name`, usually one.
    by_name: HashMap<String, BTreeSet<String>>,
}

impl ServiceState {
    /// The spec at the last reconciliation that was begun.
    pub fn spec(&self) -> Option<SpecFingerprint> {
        self.service.as_ref().map(|service| service.spec)
    }

    pub(super) fn begin(&mut self, service: &Service) {
        self.service = Some(Remembered {
            spec: SpecFingerprint::of(service),
            annotations: service.metadata.annotations.clone().unwrap_or_default(),
        });
    }

    /// The Service, which is gone, with the fields that deleting its resources needs; `None` if it was never reconciled.
    pub fn remains(&self, uid: &str) -> Option<Service> {
        let (namespace, name) = self.name.split_once('/')?;
        Some(Service {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                annotations: Some(self.service.as_ref()?.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        })
    }

    pub(crate) fn note_balancer(&mut self, plan: &Plan) {
        match plan.deletes_balancer() {
            true => self.balancer_gone = None,
            false => _ = self.balancer_gone.get_or_insert_with(Instant::now),
        }
    }

    pub fn confirmed_gone(&self, now: Instant) -> BTreeSet<InstanceId> {
        self.gone.older_than(CONFIRMATION, now).cloned().collect()
    }

    /// Records lost targets that wait for confirmation; `targets` stay until then. A confirmed loss stays confirmed
    /// until the target is wanted again, even if deregistration failed.
    pub fn note_gone(&mut self, gone: &BTreeSet<InstanceId>, targets: &BTreeSet<InstanceId>, now: Instant) {
        self.gone.retain(|id, _| gone.contains(id) || !targets.contains(id));
        for id in gone {
            self.gone.note(id.clone(), now);
        }
    }

    /// Records that no target is lost any more, or that all lost ones are removed.
    pub fn clear_gone(&mut self) {
        self.gone.clear();
    }

    /// Attached subnets that an earlier observation, long enough ago, has not chosen.
    pub fn unchosen_subnets(&self, now: Instant) -> BTreeSet<String> {
        self.unchosen_subnets
            .older_than(SUBNET_CONFIRMATION, now)
            .cloned()
            .collect()
    }

    /// Records which attached subnets an observation has not chosen. Subnets that may be detached stay known until they
    /// are detached.
    pub fn note_unchosen(&mut self, unconfirmed: &BTreeSet<String>, now: Instant) {
        let is_confirmed = |seen: Seen| seen.age(now) >= SUBNET_CONFIRMATION;
        self.unchosen_subnets
            .retain(|id, seen| unconfirmed.contains(id) || is_confirmed(seen));
        for id in unconfirmed {
            self.unchosen_subnets.note(id.clone(), now);
        }
    }

    /// Records that all attached subnets are chosen, or the others have been detached.
    pub fn clear_unchosen(&mut self) {
        self.unchosen_subnets.clear();
    }

    /// How thoroughly to search for resources of an interrupted change, by an earlier process or by this one.
    pub fn search(&self, was_held: bool) -> Search {
        match (self.failures, &self.done) {
            (1.., _) => Search::Now,
            (0, None) if was_held && (self.open == 0 || self.waiting) => Search::Earlier,
            (0, _) => Search::Named,
        }
    }

    pub fn fail(&mut self) -> Duration {
        self.done = None;
        self.is_in_memory = false;
        self.open = 0;
        self.failures = self.failures.saturating_add(1);
        self.retry_after()
    }

    pub fn retry_after(&self) -> Duration {
        backoff(self.failures)
    }

    /// The delay after a reconciliation that left something open.
    pub fn requeue_after(&self) -> Duration {
        backoff(self.open)
    }

    pub fn leave_open(&mut self, targets: Arc<BTreeSet<InstanceId>>) {
        self.done = None;
        self.targets = targets;
        self.failures = 0;
        self.open = self.open.saturating_add(1);
    }

    pub fn settle(&mut self, done: Done, targets: Arc<BTreeSet<InstanceId>>) {
        self.done = Some(done);
        self.targets = targets;
        self.failures = 0;
        self.open = 0;
        self.reported.succeed();
    }
}

fn backoff(turns: u32) -> Duration {
    doubled(FIRST_RETRY, LONGEST_RETRY, turns.saturating_sub(1))
}

impl ServiceStates {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state in place. It may have the targets of thousands of Nodes, and queued Services read it once a
    /// second, so it is never copied.
    pub fn with<T>(&self, uid: &str, read: impl FnOnce(&ServiceState) -> T) -> T {
        match self.all().by_uid.get(uid) {
            Some(state) => read(state),
            None => read(&ServiceState::default()),
        }
    }

    /// The same set, or an equal one that another Service has.
    pub fn share(&self, targets: BTreeSet<InstanceId>) -> Arc<BTreeSet<InstanceId>> {
        self.targets.share(targets)
    }

    pub fn update<T>(&self, uid: &str, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        change(self.all().by_uid.entry(uid.to_owned()).or_default())
    }

    pub fn begin(&self, service: &Service) {
        let (uid, name) = (uid(service).to_owned(), namespaced_name(service));
        let mut all = self.all();
        all.by_name.entry(name.clone()).or_default().insert(uid.clone());
        let state = all.by_uid.entry(uid).or_default();
        state.name = name;
        state.begin(service);
    }

    /// UIDs of earlier Services of this name that are gone, but whose resources may exist.
    pub fn earlier(&self, name: &str, uid: &str) -> Vec<String> {
        let all = self.all();
        let uids = all.by_name.get(name).into_iter().flatten();
        uids.filter(|other| *other != uid).cloned().collect()
    }

    pub fn names(&self) -> Vec<(String, String)> {
        let all = self.all();
        let pairs = all.by_name.iter();
        pairs
            .flat_map(|(name, uids)| uids.iter().map(|uid| (name.clone(), uid.clone())))
            .collect()
    }

    pub fn forget(&self, uid: &str) {
        let mut all = self.all();
        let Some(state) = all.by_uid.remove(uid) else {
            return;
        };

        if let Some(uids) = all.by_name.get_mut(&state.name) {
            uids.remove(uid);
            if uids.is_empty() {
                all.by_name.remove(&state.name);
            }
        }
    }
}

/// Why a Service is reconciled. The reason decides which Events are emitted and whether shared answers are accepted. It
/// does not change what is written to AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The Service is new, or a field has changed that its load balancer depends on.
    SpecChanged,
    /// This process has not made a full observation of it, and an earlier one added the finalizer.
    Restart,
    /// The last reconciliation failed or was not completed.
    Retry,
    NodesChanged,
    /// Periodic search for drift.
    Resync,
}

impl Reason {
    /// Whether to read AWS again: someone who changes a Service may have changed AWS too, and the cause of a failure
    /// may be fixed since.
    pub fn needs_fresh_reads(self) -> bool {
        matches!(self, Self::SpecChanged | Self::Retry)
    }
}

/// `held`: the Service has the finalizer. `same_targets`: the same Nodes may be targets as at the last successful
/// reconciliation.
pub fn reason(state: &ServiceState, spec: SpecFingerprint, held: bool, same_targets: bool) -> Reason {
    match state.spec() {
        None if held => Reason::Restart,
        None => Reason::SpecChanged,
        Some(before) if before != spec => Reason::SpecChanged,
        Some(_) if state.failures > 0 => Reason::Retry,
        // All other open points concern targets.
        Some(_) if state.done.is_none() && state.open > 0 => Reason::NodesChanged,
        Some(_) if state.done.is_none() => Reason::Retry,
        Some(_) if !same_targets => Reason::NodesChanged,
        Some(_) if held && state.last_full.is_none() => Reason::Restart,
        Some(_) => Reason::Resync,
    }
}

/// A hash of the fields that a Service's load balancer depends on, as in Kubernetes' service controller. A change of them
/// is reported by Events even if nothing has to be written.
///
/// Not included: selector, labels, cluster IPs, `internalTrafficPolicy`, `publishNotReadyAddresses`, endpoints and
/// status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecFingerprint(u64);

impl SpecFingerprint {
    pub fn of(service: &Service) -> Self {
        let absent = ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&absent);
        let address = spec.load_balancer_ip.as_ref().filter(|address| !address.is_empty());
        // The first family cannot change, so the number is enough.
        let ip_families = spec.ip_families.as_ref().map_or(0, Vec::len);
        let fields = (
            (&spec.type_, &spec.load_balancer_class),
            service.metadata.annotations.iter().flatten().collect::<Vec<_>>(),
            spec.load_balancer_source_ranges.iter().flatten().collect::<Vec<_>>(),
            spec.ports.iter().flatten().collect::<Vec<_>>(),
            (&spec.session_affinity, &spec.session_affinity_config),
            (address, ip_families),
            spec.external_ips.iter().flatten().collect::<Vec<_>>(),
            &spec.external_traffic_policy,
            spec.health_check_node_port.filter(|port| *port != 0),
        );

        let mut hasher = DefaultHasher::new();
        // The types of the API implement no `Hash`.
        format!("{fields:?}").hash(&mut hasher);

        Self(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use tokio::time::Instant;

    fn service(namespace: &str, name: &str, uid: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": {"a": "1"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        }))
        .unwrap()
    }

    /// The bytes of a state, without sets of targets and the nodes of maps. A new field has to be counted here.
    fn bytes_of(state: &ServiceState) -> usize {
        let ServiceState {
            name,
            service,
            done,
            last_full: _,
            first_full: _,
            targets: _,
            gone,
            unchosen_subnets,
            failures: _,
            open: _,
            waiting: _,
            is_in_memory: _,
            reported,
            had_resources: _,
            balancer_gone: _,
            owned,
            tags_set,
            given_names,
        } = state;
        let strings = |pairs: &BTreeMap<String, String>| -> usize {
            let pairs = pairs.iter().map(|(key, value)| key.capacity() + value.capacity());
            pairs.map(|text| text + 2 * size_of::<String>()).sum()
        };

        let heap = name.capacity()
            + service.as_ref().map_or(0, |service| strings(&service.annotations))
            + done.as_ref().map_or(0, |done| done.hostname.capacity())
            + gone.bytes()
            + unchosen_subnets.bytes()
            + reported.bytes()
            + owned.as_ref().map_or(0, String::capacity)
            + strings(tags_set)
            + given_names
                .iter()
                .map(|name| name.capacity() + size_of::<String>())
                .sum::<usize>();
        size_of::<ServiceState>() + heap
    }

    /// The bytes of all states. Each set of targets counts once.
    fn bytes(states: &ServiceStates) -> usize {
        let all = states.all();
        let sets: BTreeMap<*const BTreeSet<InstanceId>, usize> = all
            .by_uid
            .values()
            .map(|state| {
                let ids = state
                    .targets
                    .iter()
                    .map(|id| size_of::<InstanceId>() + id.as_str().len());
                (Arc::as_ptr(&state.targets), ids.sum())
            })
            .collect();
        all.by_uid.values().map(bytes_of).sum::<usize>() + sets.values().sum::<usize>()
    }

    /// 500 Services with 1,000 Nodes. A set of targets for each of them takes 21 MB.
    #[test]
    fn five_hundred_services_with_a_thousand_nodes_take_less_than_a_megabyte() {
        let states = ServiceStates::default();
        let nodes: BTreeSet<InstanceId> = (0..1000).map(|n| InstanceId::new(format!("i-{n:017x}"))).collect();
        for number in 0..500 {
            let uid = format!("12345678-1234-1234-1234-{number:012}");
            states.begin(&service("default", &format!("service-{number}"), &uid));
            let targets = states.share(nodes.clone());
            let done = Done {
                targets: hash_of(&nodes),
                at: Instant::now(),
                hostname: format!("{uid}-1234567890.eu-central-1.elb.amazonaws.com"),
            };
            states.update(&uid, |state| {
                // A loss that was confirmed, and a failure before the success.
                state.note_gone(&nodes, &nodes, Instant::now());
                state.clear_gone();
                state
                    .reported
                    .is_news("SyncLoadBalancerFailed", &"x".repeat(1000), Instant::now());
                state.settle(done, targets);
            });
        }

        let (all, of_one_set) = (bytes(&states), 1000 * (size_of::<InstanceId>() + 19));
        assert!(all > of_one_set, "{all} bytes");
        assert!(all < 1_000_000, "{all} bytes");
    }

    /// 500 Services with 1,000 Nodes each would otherwise take 30 MB.
    #[test]
    fn services_with_equal_targets_share_one_set() {
        let states = ServiceStates::default();
        let nodes = |number: usize| {
            (0..number)
                .map(|n| InstanceId::new(format!("i-{n}")))
                .collect::<BTreeSet<_>>()
        };
        let done = || Done {
            targets: hash_of(&nodes(1000)),
            at: Instant::now(),
            hostname: String::new(),
        };
        for service in 0..500 {
            let targets = states.share(nodes(1000));
            states.update(&service.to_string(), |state| state.settle(done(), targets));
        }
        let first = states.with("0", |state| Arc::clone(&state.targets));
        assert_eq!(Arc::strong_count(&first), 501);

        // They are forgotten with the last Service that has them.
        for service in 0..500 {
            let targets = states.share(nodes(999));
            states.update(&service.to_string(), |state| state.leave_open(targets));
        }
        assert_eq!(Arc::strong_count(&first), 1);
        drop(first);
        drop(states.share(nodes(2)));
        assert_eq!(states.targets.len(), 2);
    }

    #[test]
    fn the_backoff_doubles_from_five_seconds_to_five_minutes() {
        let mut state = ServiceState::default();
        let pauses: Vec<u64> = (0..9).map(|_| state.fail().as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_loss_of_a_target_counts_when_it_was_seen_long_enough_ago() {
        let ids = |names: &[&str]| names.iter().map(|id| InstanceId::new(*id)).collect::<BTreeSet<_>>();
        let mut state = ServiceState::default();
        state.note_gone(&ids(&["i-1", "i-2"]), &ids(&["i-1", "i-2", "i-3"]), Instant::now());
        assert!(state.confirmed_gone(Instant::now()).is_empty());
        tokio::time::advance(CONFIRMATION).await;
        state.note_gone(&ids(&["i-1", "i-3"]), &ids(&["i-1", "i-2", "i-3"]), Instant::now());
        assert_eq!(
            state.confirmed_gone(Instant::now()),
            ids(&["i-1"]),
            "i-2 is back, i-3 is new"
        );
        state.note_gone(&ids(&["i-3"]), &ids(&["i-2", "i-3"]), Instant::now());
        tokio::time::advance(CONFIRMATION).await;
        assert_eq!(
            state.confirmed_gone(Instant::now()),
            ids(&["i-1", "i-3"]),
            "i-1 waits to be taken away"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmed_loss_stays_so_until_the_targets_are_gone_or_back() {
        let ids = |names: &[&str]| names.iter().map(|id| InstanceId::new(*id)).collect::<BTreeSet<_>>();
        let mut state = ServiceState::default();
        state.note_gone(&ids(&["i-1", "i-2"]), &ids(&["i-1", "i-2", "i-3"]), Instant::now());
        tokio::time::advance(CONFIRMATION).await;
        state.note_gone(&ids(&[]), &ids(&["i-2", "i-3"]), Instant::now());
        assert_eq!(state.confirmed_gone(Instant::now()), ids(&["i-1"]), "i-2 is back");
        state.clear_gone();
        assert!(state.confirmed_gone(Instant::now()).is_empty(), "it was taken away");
    }

    #[test]
    fn unused_target_groups_are_searched_after_a_start_and_after_a_failure() {
        let mut state = ServiceState::default();
        assert_eq!(state.search(true), Search::Earlier);
        assert_eq!(state.search(false), Search::Named, "nobody has held it before");
        state.fail();
        assert_eq!(state.search(true), Search::Now);
        assert_eq!(state.search(false), Search::Now);
        state.leave_open(Arc::default());
        assert_eq!(state.search(true), Search::Named, "it has been looked for");
    }

    #[test]
    fn an_earlier_service_of_the_same_name_is_known_until_it_is_forgotten() {
        let states = ServiceStates::default();
        states.begin(&service("default", "web", "u1"));
        states.begin(&service("default", "web", "u2"));
        assert_eq!(states.earlier("default/web", "u2"), ["u1"]);
        assert_eq!(states.names().len(), 2);
        states.forget("u1");
        assert!(states.earlier("default/web", "u2").is_empty());
        states.forget("u2");
        assert!(states.names().is_empty());
    }

    #[test]
    fn state_fingerprint_and_targets_decide_the_reason() {
        let (web, mut state) = (service("default", "web", "u1"), ServiceState::default());
        let fingerprint = SpecFingerprint::of(&web);
        assert_eq!(reason(&state, fingerprint, true, true), Reason::Restart);
        assert_eq!(
            reason(&state, fingerprint, false, true),
            Reason::SpecChanged,
            "new to everyone"
        );
        state.begin(&web);
        assert_eq!(
            reason(&state, fingerprint, true, true),
            Reason::Retry,
            "cut off before its end"
        );
        state.leave_open(Arc::default());
        assert_eq!(
            reason(&state, fingerprint, true, true),
            Reason::NodesChanged,
            "a target is waited for"
        );
        state.done = Some(Done {
            targets: 0,
            at: Instant::now(),
            hostname: String::new(),
        });
        assert_eq!(reason(&state, fingerprint, true, true), Reason::Restart);
        assert_eq!(reason(&state, fingerprint, true, false), Reason::NodesChanged);
        state.last_full = Some(Instant::now());
        assert_eq!(reason(&state, fingerprint, true, true), Reason::Resync);
        assert_eq!(reason(&state, fingerprint, true, false), Reason::NodesChanged);
        state.fail();
        assert_eq!(reason(&state, fingerprint, true, false), Reason::Retry);
        let service = serde_json::from_value(serde_json::json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(
            reason(&state, SpecFingerprint::of(&service.unwrap()), true, true),
            Reason::SpecChanged
        );
    }

    fn with(path: &str, value: Value) -> SpecFingerprint {
        let mut service = json!({
            "metadata": {"annotations": {"a": "1"}, "labels": {"l": "1"}},
            "spec": {
                "type": "LoadBalancer", "sessionAffinity": "None", "selector": {"app": "web"},
                "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}],
                "ipFamilies": ["IPv4"], "externalTrafficPolicy": "Cluster",
            },
            "status": {},
        });
        if !path.is_empty() {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let parent = service.pointer_mut(parent).unwrap();
            if let Ok(index) = field.parse::<usize>() {
                parent[index] = value;
            } else {
                parent[field] = value;
            }
        }
        SpecFingerprint::of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn what_the_load_balancer_depends_on_makes_a_difference_and_nothing_else_does() {
        let as_it_was = with("", Value::Null);
        for (path, value) in [
            ("/metadata/annotations", json!({"a": "2"})),
            ("/metadata/annotations", json!({"a": "1", "example.com/beat": "1"})),
            ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
            ("/spec/ports/1/nodePort", json!(30082)),
            ("/spec/ports/1/targetPort", json!(8080)),
            ("/spec/ports/1/appProtocol", json!("http")),
            ("/spec/ports/1/name", json!("c")),
            (
                "/spec/ports",
                json!([{"name": "b", "port": 81, "nodePort": 30081}, {"name": "a", "port": 80, "nodePort": 30080}]),
            ),
            ("/spec/sessionAffinity", json!("ClientIP")),
            (
                "/spec/sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 5}}),
            ),
            ("/spec/loadBalancerIP", json!("192.0.2.1")),
            ("/spec/externalIPs", json!(["192.0.2.1"])),
            ("/spec/type", json!("NodePort")),
            ("/spec/loadBalancerClass", json!("example.com/other")),
            ("/spec/externalTrafficPolicy", json!("Local")),
            ("/spec/healthCheckNodePort", json!(32000)),
            ("/spec/ipFamilies", json!(["IPv4", "IPv6"])),
        ] {
            assert_ne!(with(path, value), as_it_was, "{path}");
        }
        for (path, value) in [
            ("/metadata/labels", json!({"l": "2"})),
            ("/spec/selector", json!({"app": "other"})),
            ("/spec/internalTrafficPolicy", json!("Local")),
            ("/spec/allocateLoadBalancerNodePorts", json!(false)),
            ("/spec/clusterIPs", json!(["10.0.0.1"])),
            ("/spec/publishNotReadyAddresses", json!(true)),
            ("/spec/ipFamilies", json!(["IPv6"])),
            ("/status/loadBalancer", json!({"ingress": [{"hostname": "h"}]})),
        ] {
            assert_eq!(with(path, value), as_it_was, "{path}");
        }
    }

    #[test]
    fn what_remains_of_a_service_has_its_names_and_annotations() {
        let states = ServiceStates::default();
        states.begin(&service("default", "web", "u1"));
        let remains = states.with("u1", |state| state.remains("u1")).unwrap();
        assert_eq!(remains.metadata.annotations.as_ref().unwrap()["a"], "1");
        assert_eq!(
            super::super::super::action::action(&remains),
            super::super::super::action::ServiceAction::Ensure
        );
        assert!(states.with("u2", |state| state.remains("u2")).is_none());
    }
}
