//! What is remembered of a Service between two looks. Nothing here is needed to be right, only to be quiet: a new
//! process starts without it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::{InstanceId, Tags};
use tokio::time::Instant;

use super::super::inventory::target_group_list::Search;
use super::super::plan::Plan;
use super::super::plan::quota::Fullness;
use super::spec_fingerprint::SpecFingerprint;

/// First pause after a failure; it doubles with each further one, as in the service controller of Kubernetes.
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// Longest pause after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// How far apart two looks must be for a sudden loss of targets to count.
pub const CONFIRMATION: Duration = Duration::from_secs(5);

/// How far apart two observations must be for a subnet to be detached: someone who replaces a route table may need so long.
pub const SUBNET_CONFIRMATION: Duration = Duration::from_secs(60);

/// After this time the same failure is told again.
const REPORT_AGAIN: Duration = Duration::from_secs(600);

/// A look that ended well.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Nodes that were, or would have become, targets.
    pub targets: BTreeSet<InstanceId>,
    /// When.
    pub at: Instant,
    /// The load balancer's address.
    pub hostname: String,
}

/// What is remembered of one Service.
#[derive(Debug, Clone, Default)]
pub struct ServiceState {
    /// Namespace and name, as `namespace/name`.
    pub name: String,
    /// What the Service asked for at the last look that was begun.
    pub fingerprint: Option<SpecFingerprint>,
    /// The last look that ended well, if none has failed since.
    pub settled: Option<Settled>,
    /// When everything was last looked at, with a good end: a look for the sake of targets does not read all.
    pub last_full: Option<Instant>,
    /// Targets after the last look that ended well.
    pub targets: BTreeSet<InstanceId>,
    /// Targets that looked gone, each with the first look that found it so.
    seen_gone: BTreeMap<InstanceId, Instant>,
    /// Attached subnets that were not chosen, each with the first observation of that.
    unchosen_subnets: BTreeMap<String, Instant>,
    /// Failures in a row.
    pub failures: u32,
    /// Looks in a row that ended well and left something open.
    pub open: u32,
    /// Whether the last look left targets that wait to go, or that AWS has refused: what belongs to them goes after them.
    pub waiting: bool,
    /// What was told last of each kind, and when.
    reported: BTreeMap<&'static str, (Instant, String)>,
    /// Whether the last look relied on rules that another load balancer has brought, which may just be going with it.
    pub relies_on_shared_rules: bool,
    /// Whether a deletion has found anything that the Service had: what is released is then this controller's.
    pub had_resources: bool,
    /// Since when the deletion finds the load balancer gone and something else left.
    pub balancer_gone: Option<Instant>,
    /// Whether the beginning of the deletion was told.
    pub deletion_reported: bool,
    /// Whether it was told that the load balancer is being ensured, and not yet that it is.
    pub ensuring_reported: bool,
    /// Whether it was told that there are no nodes.
    pub no_nodes_reported: bool,
    /// Whether an Event said that annotation `internal` differs from the load balancer's scheme.
    pub scheme_reported: bool,
    /// What was told last of groups near their quota.
    pub fullness_reported: Vec<Fullness>,
    /// The DNS name of the load balancer, once it is known not to be another cluster's.
    pub owned: Option<String>,
    /// Tags of the annotation that were set on a classic load balancer. Where tags may not be read, nothing else tells which
    /// ones are there.
    pub tags_set: Tags,
    /// The exact names of the target groups that the Service has had since all was well, for where tags may not be read.
    pub given_names: BTreeSet<String>,
}

/// The memories, by the Services' UIDs.
#[derive(Debug, Default)]
pub struct ServiceStates {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    by_uid: HashMap<String, ServiceState>,
    /// UIDs by namespace and name: usually one.
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

    /// Targets that an earlier look, long enough ago, found gone.
    #[must_use]
    pub fn confirmed_gone(&self, now: Instant) -> BTreeSet<InstanceId> {
        let old = |(_, at): &(&InstanceId, &Instant)| now.saturating_duration_since(**at) >= CONFIRMATION;
        self.seen_gone.iter().filter(old).map(|(id, _)| id.clone()).collect()
    }

    /// Takes in which targets a look found gone that wait to be found so again; `targets` are those that are to stay until
    /// then. Whoever was found gone before stays so, also when the writes fail or wait that take it away, until it is
    /// to be a target again.
    pub fn note_gone(&mut self, gone: &BTreeSet<InstanceId>, targets: &BTreeSet<InstanceId>, now: Instant) {
        self.seen_gone
            .retain(|id, _| gone.contains(id) || !targets.contains(id));
        for id in gone {
            self.seen_gone.entry(id.clone()).or_insert(now);
        }
    }

    /// Takes in that no target is gone any more, or all that were have been taken away.
    pub fn clear_gone(&mut self) {
        self.seen_gone.clear();
    }

    /// Attached subnets that an earlier observation, long enough ago, has not chosen.
    #[must_use]
    pub fn unchosen_subnets(&self, now: Instant) -> BTreeSet<String> {
        let old = |(_, at): &(&String, &Instant)| now.saturating_duration_since(**at) >= SUBNET_CONFIRMATION;
        self.unchosen_subnets
            .iter()
            .filter(old)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Records which attached subnets an observation has not chosen. Those that may be detached stay known until that is done.
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

    /// How thoroughly to look for what a change that was cut off has left: by an earlier process, or just now.
    #[must_use]
    pub fn search(&self, was_held: bool) -> Search {
        match (self.failures, &self.settled) {
            (1.., _) => Search::Now,
            (0, None) if was_held && (self.open == 0 || self.waiting) => Search::Earlier,
            (0, _) => Search::Named,
        }
    }

    /// Takes in a failure and says how long to wait.
    pub fn fail(&mut self) -> Duration {
        self.settled = None;
        self.open = 0;
        self.failures = self.failures.saturating_add(1);
        self.retry_after()
    }

    /// The pause after the failures so far.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        backoff(self.failures)
    }

    /// The pause after a look that left something open.
    #[must_use]
    pub fn requeue_after(&self) -> Duration {
        backoff(self.open)
    }

    /// Takes in a look that ended well, but waits for something: there will be another soon.
    pub fn leave_open(&mut self, targets: BTreeSet<InstanceId>) {
        self.settled = None;
        self.targets = targets;
        self.failures = 0;
        self.open = self.open.saturating_add(1);
    }

    /// Takes in a look that found something to do, which has to wait: nothing that was known before counts as settled.
    pub fn wait(&mut self) {
        self.settled = None;
    }

    /// Whether this failure is to be told: it is another one of its kind than before, or was last told long ago.
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

    /// Takes in a look that ended well.
    pub fn settle(&mut self, settled: Settled, targets: BTreeSet<InstanceId>) {
        self.settled = Some(settled);
        self.targets = targets;
        self.failures = 0;
        self.open = 0;
        self.reported.clear();
    }
}

/// A failure's text without what AWS makes up for each request: its ID, and the encoded details of a denial.
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

/// The pause after so many turns in a row.
fn backoff(turns: u32) -> Duration {
    let doublings = turns.saturating_sub(1).min(16);
    FIRST_RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY)
}

impl ServiceStates {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of a Service.
    #[must_use]
    pub fn of(&self, uid: &str) -> ServiceState {
        self.all().by_uid.get(uid).cloned().unwrap_or_default()
    }

    /// Changes what is remembered of a Service.
    pub fn update<T>(&self, uid: &str, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        change(self.all().by_uid.entry(uid.to_owned()).or_default())
    }

    /// Remembers that a Service is worked on, by its name (`namespace/name`), and what it asks for.
    pub fn begin(&self, uid: &str, name: &str, fingerprint: SpecFingerprint) {
        let mut all = self.all();
        all.by_name.entry(name.to_owned()).or_default().insert(uid.to_owned());
        let state = all.by_uid.entry(uid.to_owned()).or_default();
        name.clone_into(&mut state.name);
        state.fingerprint = Some(fingerprint);
    }

    /// UIDs of earlier Services of this name: they are gone, and were never let go.
    #[must_use]
    pub fn earlier(&self, name: &str, uid: &str) -> Vec<String> {
        let all = self.all();
        let uids = all.by_name.get(name).into_iter().flatten();
        uids.filter(|other| *other != uid).cloned().collect()
    }

    /// Names and UIDs of all Services that are worked on.
    #[must_use]
    pub fn names(&self) -> Vec<(String, String)> {
        let all = self.all();
        let pairs = all.by_name.iter();
        pairs
            .flat_map(|(name, uids)| uids.iter().map(|uid| (name.clone(), uid.clone())))
            .collect()
    }

    /// Forgets a Service.
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
    fn pauses_double_from_five_seconds_to_five_minutes() {
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
    fn what_was_left_over_is_looked_for_after_a_start_and_after_a_failure() {
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
    async fn the_same_failure_is_told_once_in_ten_minutes() {
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
