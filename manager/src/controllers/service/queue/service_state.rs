//! State of a Service between reconciliations. A new process starts without it. Most of it avoids repeated Events and
//! reads; `had_resources`, confirmed losses, and name and fingerprint also decide what is deleted and which finalizer
//! is removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::{InstanceId, Tags};
use tokio::time::Instant;

use super::super::inventory::target_group_list::Search;
use super::super::plan::Plan;
use super::super::plan::quota::Fullness;
use super::spec_fingerprint::SpecFingerprint;

/// First backoff after a failure; it doubles with each further one, as in Kubernetes' service controller.
const FIRST_RETRY: Duration = Duration::from_secs(5);

const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// A sudden loss of targets must be observed for this time before it counts.
pub const CONFIRMATION: Duration = Duration::from_secs(5);

/// A subnet must be unchosen for this time before it is detached: replacing a route table may take that long.
pub const SUBNET_CONFIRMATION: Duration = Duration::from_secs(60);

/// After this time the same failure is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(600);

/// A successful reconciliation without open points.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Nodes that were targets, or would have become one.
    pub targets: BTreeSet<InstanceId>,
    pub at: Instant,
    pub hostname: String,
}

#[derive(Debug, Clone, Default)]
pub struct ServiceState {
    /// `namespace/name`.
    pub name: String,
    /// The spec at the last reconciliation that was begun.
    pub fingerprint: Option<SpecFingerprint>,
    /// The last successful reconciliation, if none has failed since.
    pub settled: Option<Settled>,
    /// Time of the last successful full observation, with attributes.
    pub last_full: Option<Instant>,
    /// Targets after the last successful reconciliation.
    pub targets: BTreeSet<InstanceId>,
    /// Targets that look lost, each with the first observation of that.
    seen_gone: BTreeMap<InstanceId, Instant>,
    /// Attached subnets that were not chosen, each with the first observation of that.
    unchosen_subnets: BTreeMap<String, Instant>,
    pub failures: u32,
    /// Successful reconciliations in a row that left something open.
    pub open: u32,
    /// Whether targets wait for removal, or AWS has refused some: resources that depend on them are removed later.
    pub waiting: bool,
    /// The last message of each Event reason, and when it was emitted.
    reported: BTreeMap<&'static str, (Instant, String)>,
    /// Whether the load balancer relies on a rule of another one, which a deletion may remove.
    pub relies_on_shared_rules: bool,
    /// Whether a deletion has found resources: then the finalizer is this controller's.
    pub had_resources: bool,
    /// Since when the deletion finds the load balancer gone and something else left.
    pub balancer_gone: Option<Instant>,
    pub deletion_reported: bool,
    /// Whether `EnsuringLoadBalancer` was emitted, but not yet `EnsuredLoadBalancer`.
    pub ensuring_reported: bool,
    pub no_nodes_reported: bool,
    /// Whether an Event said that annotation `internal` differs from the load balancer's scheme.
    pub scheme_reported: bool,
    /// The last reported groups near their quota.
    pub fullness_reported: Vec<Fullness>,
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
}

#[derive(Debug, Default)]
struct All {
    by_uid: HashMap<String, ServiceState>,
    /// UIDs by `namespace/name`, usually one.
    by_name: HashMap<String, BTreeSet<String>>,
}

impl ServiceState {
    /// Records since when deletions find the load balancer gone.
    pub(crate) fn note_balancer(&mut self, plan: &Plan) {
        let has_balancer = plan.steps.iter().any(|planned| planned.step.deletes_balancer());
        match has_balancer {
            true => self.balancer_gone = None,
            false => _ = self.balancer_gone.get_or_insert_with(Instant::now),
        }
    }

    /// Targets whose loss is confirmed.
    pub fn confirmed_gone(&self, now: Instant) -> BTreeSet<InstanceId> {
        let old = |(_, at): &(&InstanceId, &Instant)| now.saturating_duration_since(**at) >= CONFIRMATION;
        self.seen_gone.iter().filter(old).map(|(id, _)| id.clone()).collect()
    }

    /// Records lost targets that wait for confirmation; `targets` stay until then. A confirmed loss stays confirmed
    /// until the target is wanted again, even if deregistration failed.
    pub fn note_gone(&mut self, gone: &BTreeSet<InstanceId>, targets: &BTreeSet<InstanceId>, now: Instant) {
        self.seen_gone
            .retain(|id, _| gone.contains(id) || !targets.contains(id));
        for id in gone {
            self.seen_gone.entry(id.clone()).or_insert(now);
        }
    }

    /// Records that no target is lost any more, or that all lost ones are removed.
    pub fn clear_gone(&mut self) {
        self.seen_gone.clear();
    }

    /// Attached subnets that an earlier observation, long enough ago, has not chosen.
    pub fn unchosen_subnets(&self, now: Instant) -> BTreeSet<String> {
        let old = |(_, at): &(&String, &Instant)| now.saturating_duration_since(**at) >= SUBNET_CONFIRMATION;
        self.unchosen_subnets
            .iter()
            .filter(old)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Records which attached subnets an observation has not chosen. Those that may be detached stay known until that
    /// is done.
    pub fn note_unchosen(&mut self, unconfirmed: &BTreeSet<String>, now: Instant) {
        let confirmed = self.unchosen_subnets(now);
        self.unchosen_subnets
            .retain(|id, _| unconfirmed.contains(id) || confirmed.contains(id));
        for id in unconfirmed {
            self.unchosen_subnets.entry(id.clone()).or_insert(now);
        }
    }

    /// Records that all attached subnets are chosen, or the others have been detached.
    pub fn clear_unchosen(&mut self) {
        self.unchosen_subnets.clear();
    }

    /// How thoroughly to search for resources of an interrupted change, by an earlier process or by this one.
    pub fn search(&self, was_held: bool) -> Search {
        match (self.failures, &self.settled) {
            (1.., _) => Search::Now,
            (0, None) if was_held && (self.open == 0 || self.waiting) => Search::Earlier,
            (0, _) => Search::Named,
        }
    }

    /// Records a failure and returns the backoff.
    pub fn fail(&mut self) -> Duration {
        self.settled = None;
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

    /// Records a success that left something open.
    pub fn leave_open(&mut self, targets: BTreeSet<InstanceId>) {
        self.settled = None;
        self.targets = targets;
        self.failures = 0;
        self.open = self.open.saturating_add(1);
    }

    /// Records that a change is needed but has to wait.
    pub fn wait(&mut self) {
        self.settled = None;
    }

    /// Whether to report this message: it differs from the last one of its kind, or that was long ago.
    pub fn is_news(&mut self, kind: &'static str, message: &str, now: Instant) -> bool {
        let message = &without_request_details(message);
        let known =
            |(at, last): &(Instant, String)| last == message && now.saturating_duration_since(*at) < REPORT_AGAIN;
        if self.reported.get(kind).is_some_and(known) {
            return false;
        }

        self.reported.insert(kind, (now, message.to_owned()));

        true
    }

    /// Records a success without open points.
    pub fn settle(&mut self, settled: Settled, targets: BTreeSet<InstanceId>) {
        self.settled = Some(settled);
        self.targets = targets;
        self.failures = 0;
        self.open = 0;
        self.reported.clear();
    }
}

/// The text without the parts that differ for each request: its ID, and the encoded details of a denial.
fn without_request_details(message: &str) -> String {
    const DETAILS: &str = "Encoded authorization failure message: ";

    let (mut text, mut rest) = (String::new(), message);
    while let Some((before, after)) = rest.split_once(" (request ") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }

    text.push_str(rest);
    match text.split_once(DETAILS) {
        Some((before, after)) => {
            let after = after.split_once(' ').map_or("", |(_, after)| after);
            format!("{before}{DETAILS}{after}")
        }
        None => text,
    }
}

fn backoff(turns: u32) -> Duration {
    let doublings = turns.saturating_sub(1).min(16);
    FIRST_RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY)
}

impl ServiceStates {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, uid: &str) -> ServiceState {
        self.all().by_uid.get(uid).cloned().unwrap_or_default()
    }

    pub fn update<T>(&self, uid: &str, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        change(self.all().by_uid.entry(uid.to_owned()).or_default())
    }

    /// Records the start of a reconciliation. `name` is `namespace/name`.
    pub fn begin(&self, uid: &str, name: &str, fingerprint: SpecFingerprint) {
        let mut all = self.all();
        all.by_name.entry(name.to_owned()).or_default().insert(uid.to_owned());
        let state = all.by_uid.entry(uid.to_owned()).or_default();
        name.clone_into(&mut state.name);
        state.fingerprint = Some(fingerprint);
    }

    /// UIDs of earlier Services of this name that are gone, but whose resources may exist.
    pub fn earlier(&self, name: &str, uid: &str) -> Vec<String> {
        let all = self.all();
        let uids = all.by_name.get(name).into_iter().flatten();
        uids.filter(|other| *other != uid).cloned().collect()
    }

    /// Names and UIDs of all known Services.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        state.leave_open(BTreeSet::new());
        assert_eq!(state.search(true), Search::Named, "it has been looked for");
    }

    #[test]
    fn an_earlier_service_of_the_same_name_is_known_until_it_is_forgotten() {
        let states = ServiceStates::default();
        states.begin("u1", "default/web", SpecFingerprint::default());
        states.begin("u2", "default/web", SpecFingerprint::default());
        assert_eq!(states.earlier("default/web", "u2"), ["u1"]);
        assert_eq!(states.names().len(), 2);
        states.forget("u1");
        assert!(states.earlier("default/web", "u2").is_empty());
        states.forget("u2");
        assert!(states.names().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_failure_is_reported_once_in_ten_minutes() {
        let mut state = ServiceState::default();
        assert!(state.is_news("F", "a", Instant::now()));
        assert!(!state.is_news("F", "a", Instant::now()));
        assert!(state.is_news("T", "other", Instant::now()), "of another kind");
        assert!(!state.is_news("F", "a", Instant::now()));
        let denied = |id| {
            let words = format!("denied. Encoded authorization failure message: {id} on i-1");
            outrigger_aws::Error::answered("RegisterTargets", "AccessDenied", words).with_request_id(Some(id))
        };
        assert!(state.is_news("F", &denied("r-1").to_string(), Instant::now()));
        assert!(
            !state.is_news("F", &denied("r-2").to_string(), Instant::now()),
            "another request"
        );
        assert!(state.is_news("F", "b", Instant::now()));
        tokio::time::advance(REPORT_AGAIN).await;
        assert!(state.is_news("F", "b", Instant::now()));
    }
}
