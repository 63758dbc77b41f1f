//! Answers of AWS that several Services use.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{MAX_FILTER_VALUES, RouteTable, SecurityGroup, Subnet};
use outrigger_aws::elb::LoadBalancer;
use outrigger_aws::elbv2::NetworkLoadBalancer;
use outrigger_aws::{Error, Tags};
use tokio::time::Instant;

use super::super::action::{ServiceAction, action};
use super::super::model::classic::KnownTags;
use super::super::plan::Step;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::{names, request};
use super::facts::Facts;

type Services = Box<dyn Fn() -> Vec<Arc<Service>> + Send + Sync>;

#[derive(Default)]
pub struct Shared {
    pub(super) subnets: SingleFlight<Arc<Vec<Subnet>>>,
    pub(super) route_tables: SingleFlight<Arc<Vec<RouteTable>>>,
    pub(super) named: SingleFlight<Option<Arc<SecurityGroup>>>,
    pub(super) groups: SingleFlight<Option<Arc<SecurityGroup>>>,
    /// Groups with a rule that names a group, by that group's ID.
    pub(super) referencing: SingleFlight<Vec<Arc<SecurityGroup>>>,
    /// Groups by the filter that finds them.
    pub(super) found: SingleFlight<Arc<Vec<SecurityGroup>>>,
    pub(super) classic: Prefetch<(LoadBalancer, KnownTags)>,
    /// Network load balancers, with their tags if they were read.
    pub(super) network: Prefetch<(NetworkLoadBalancer, Option<Tags>)>,
    pub facts: Facts,
    services: OnceLock<Services>,
}

impl Shared {
    /// Sets the Services to prefetch for, in the order in which they will be reconciled; without them nothing is
    /// prefetched.
    pub fn prefetch_for(&self, services: impl Fn() -> Vec<Arc<Service>> + Send + Sync + 'static) {
        // A second call would set the same: a process has one cache of Services.
        let _ = self.services.set(Box::new(services));
    }

    /// Records the end of a write, successful or not. A write to any security group invalidates all answers about
    /// groups: which other answers it changes, by a rule that names a group or by a filter, would have to be guessed. A
    /// failed write may have had an effect.
    pub fn written(&self, load_balancer: &str, step: &Step) {
        self.facts.written(load_balancer, step);
        self.classic.forget(load_balancer);
        self.network.forget(load_balancer);
        if matches!(step, Step::Group(_)) {
            self.groups_written();
        }
    }

    pub fn groups_written(&self) {
        self.named.invalidate();
        self.groups.invalidate();
        self.referencing.invalidate();
        self.found.invalidate();
    }

    /// Many Services wait for their turns: after a start, or a change of Nodes. They are described in batches.
    pub fn many_wait(&self) {
        self.classic.begin(&self.load_balancers(Kind::Classic));
        self.network.begin(&self.load_balancers(Kind::Network));
    }

    /// Names of all existing load balancers of this kind that Services request, in the order of the Services. AWS refuses
    /// a whole call for one name that does not exist.
    pub(super) fn load_balancers(&self, kind: Kind) -> Vec<String> {
        let services = self.services.get().map(|services| services()).unwrap_or_default();
        let wanted = services.iter().filter(|service| {
            action(service) == ServiceAction::Ensure
                && Annotations::of(service).kind() == kind
                && request::kind_in_status(service).is_some()
        });

        wanted
            .map(|service| names::load_balancer(names::uid(service)))
            .collect()
    }

    /// Names of groups that other Services will need, as many as fit in one call beside one.
    pub(super) fn groups_to_prefetch(&self) -> BTreeSet<String> {
        let balancers = self.load_balancers(Kind::Classic).into_iter();
        let names = balancers.map(|name| names::security_group(&name));
        let unknown = names.filter(|name| !self.named.has(name));
        unknown.take(MAX_FILTER_VALUES - 1).collect()
    }

    /// IDs of groups whose references other Services will need, as many as fit in one call beside two.
    pub(super) fn sources_to_prefetch(&self) -> BTreeSet<String> {
        let known = self.named.values().into_iter().flatten();
        let ids = known.map(|group| group.id.clone());
        let unknown = ids.filter(|id| !self.referencing.has(id));
        unknown.take(MAX_FILTER_VALUES - 2).collect()
    }
}

pub(super) fn each<V: Default>(keys: BTreeSet<String>, mut found: BTreeMap<String, V>) -> BTreeMap<String, V> {
    let value = |key: String| {
        let value = found.remove(&key).unwrap_or_default();
        (key, value)
    };
    keys.into_iter().map(value).collect()
}

static LAST: AtomicU64 = AtomicU64::new(0);

/// The time of a call or write. Stamps have a strict order even if the clock is coarse or stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    number: u64,
    at: Instant,
}

impl Stamp {
    pub(super) fn now() -> Self {
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            at: Instant::now(),
        }
    }

    /// Time from this one to the other; zero if this one is later.
    pub(super) fn age(&self, other: Self) -> Duration {
        other.at.saturating_duration_since(self.at)
    }
}

/// How long an answer that was given to one Service serves others.
pub const MAX_AGE: Duration = Duration::from_secs(60);

/// The age limits of one observation. Records whether it used an answer from before its start.
#[derive(Debug)]
pub struct Freshness {
    began: Stamp,
    /// Whether it accepts answers from before its start.
    pub is_cached: bool,
    used_older: AtomicBool,
}

impl Freshness {
    /// Starts an observation. A `cached` one accepts answers of up to [`MAX_AGE`] before its start.
    pub(super) fn starting_now(is_cached: bool) -> Self {
        Self {
            began: Stamp::now(),
            is_cached,
            used_older: AtomicBool::new(false),
        }
    }

    /// No shared answer is from before this moment.
    pub(super) fn since(&self) -> Instant {
        let age = if self.is_cached { MAX_AGE } else { Duration::ZERO };
        self.began.at.checked_sub(age).unwrap_or(self.began.at)
    }

    /// Records the use of an answer from before the start.
    pub fn note_older(&self) {
        self.used_older.store(true, Ordering::Relaxed);
    }

    pub fn used_older(&self) -> bool {
        self.used_older.load(Ordering::Relaxed)
    }

    /// Whether an answer of that moment serves this observation.
    fn takes(&self, answered: Stamp, max_age: Duration) -> bool {
        if answered > self.began {
            return true;
        }

        let serves = self.is_cached && answered.age(self.began) < max_age;
        if serves {
            self.note_older();
        }

        serves
    }
}

/// Shared answers of AWS by key, such as a group's name.
#[derive(Debug, Default)]
pub(super) struct SingleFlight<V> {
    kept: Mutex<Kept<V>>,
    /// One call at a time; the waiting callers use its answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept<V> {
    answers: HashMap<String, (Stamp, V)>,
    dropped: Option<Stamp>,
}

impl<V: Clone + Default> SingleFlight<V> {
    fn kept(&self) -> MutexGuard<'_, Kept<V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers for these keys: kept ones that are fresh enough, the others from one call of `ask`. That call also
    /// gets the keys of `ahead`, which other Services will need. A key that `ask` leaves out has no answer.
    pub(super) async fn of<F>(
        &self,
        keys: &BTreeSet<String>,
        freshness: &Freshness,
        ahead: impl FnOnce() -> BTreeSet<String>,
        ask: impl FnOnce(BTreeSet<String>) -> F,
    ) -> Result<BTreeMap<String, V>, Error>
    where
        F: Future<Output = Result<BTreeMap<String, V>, Error>>,
    {
        let found = self.found(keys, freshness);
        if found.len() == keys.len() {
            return Ok(found);
        }

        let _turn = self.turn.lock().await;
        let mut found = self.found(keys, freshness);
        let mut missing: BTreeSet<String> = keys.iter().filter(|key| !found.contains_key(*key)).cloned().collect();
        if missing.is_empty() {
            return Ok(found);
        }

        if freshness.is_cached {
            missing.extend(ahead());
        }

        let asked = Stamp::now();
        let answers = ask(missing).await?;
        let of_keys = answers.iter().filter(|(key, _)| keys.contains(*key));
        found.extend(of_keys.map(|(key, value)| (key.clone(), value.clone())));
        self.keep(asked, answers);

        Ok(found)
    }

    pub(super) async fn one<F>(&self, key: &str, freshness: &Freshness, ask: impl FnOnce() -> F) -> Result<V, Error>
    where
        F: Future<Output = Result<V, Error>>,
    {
        let ask = |keys: BTreeSet<String>| async move {
            let answer = ask().await?;
            Ok(keys.into_iter().map(|key| (key, answer.clone())).collect())
        };
        let keys = BTreeSet::from([key.to_owned()]);
        let mut found = self.of(&keys, freshness, BTreeSet::new, ask).await?;
        Ok(found.remove(key).unwrap_or_default())
    }

    fn found(&self, keys: &BTreeSet<String>, freshness: &Freshness) -> BTreeMap<String, V> {
        let kept = self.kept();
        let answer = |key: &String| {
            let (answered, value) = kept.answers.get(key)?;
            freshness
                .takes(*answered, MAX_AGE)
                .then(|| (key.clone(), value.clone()))
        };
        keys.iter().filter_map(answer).collect()
    }

    /// Whether there is an answer that could be used now.
    pub(super) fn has(&self, key: &str) -> bool {
        let now = Stamp::now();
        let is_usable = |(answered, _): &(Stamp, V)| answered.age(now) < MAX_AGE;
        self.kept().answers.get(key).is_some_and(is_usable)
    }

    pub(super) fn values(&self) -> Vec<V> {
        self.kept().answers.values().map(|(_, value)| value.clone()).collect()
    }

    /// Keeps answers, unless they were invalidated since the call.
    fn keep(&self, asked: Stamp, answers: BTreeMap<String, V>) {
        let mut kept = self.kept();
        kept.answers.retain(|_, (answered, _)| answered.age(asked) < MAX_AGE);
        if kept.dropped.is_none_or(|dropped| asked > dropped) {
            let answers = answers.into_iter().map(|(key, value)| (key, (asked, value)));
            kept.answers.extend(answers);
        }
    }

    /// Drops all answers, also those under way.
    pub(super) fn invalidate(&self) {
        let mut kept = self.kept();
        kept.answers.clear();
        kept.dropped = Some(Stamp::now());
    }
}

const BATCH_SIZE: usize = 20;

/// How long a description is kept for its Service. The other reads, one load balancer at a time, take minutes for
/// hundreds of them within AWS's limits.
const PREFETCH_MAX_AGE: Duration = Duration::from_secs(300);

/// Describes load balancers in batches before their Services are reconciled: after a start, and after a change of Nodes.
/// Holds descriptions of one kind by name; `None`: AWS has none of that name.
#[derive(Debug, Default)]
pub(super) struct Prefetch<T> {
    state: Mutex<State<T>>,
    /// One call at a time; the waiting callers use its answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State<T> {
    /// Names that were not observed since the start or the last change of Nodes; `None` before the first observation.
    waiting: Option<HashSet<String>>,
    /// Described and not used yet.
    ready: HashMap<String, (Stamp, Option<T>)>,
    /// How often all names have begun to wait.
    begun: u64,
}

impl<T> State<T> {
    fn is_waiting(&self, name: &str) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.contains(name))
    }

    fn remove_waiting(&mut self, name: &str) -> bool {
        self.waiting.as_mut().is_some_and(|waiting| waiting.remove(name))
    }

    fn batch(&self, name: &str, order: Vec<String>) -> Vec<String> {
        let others = order
            .into_iter()
            .filter(|other| other != name && self.is_waiting(other));
        std::iter::once(name.to_owned())
            .chain(others)
            .take(BATCH_SIZE)
            .collect()
    }
}

impl<T> Prefetch<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The description of this load balancer, at its first observation since all have to be observed: prefetched, or
    /// read now together with the next others that wait. Those are the names of `all` at the very first observation, or
    /// of [`Prefetch::begin`] since. `all` gives them in the order in which they will be observed: a description that is
    /// used at once is young enough for a write, and is not read again.
    ///
    /// `None` for fresh reads, from the second observation on, and if there are no others or the batch failed: the
    /// caller then describes it alone.
    pub(super) async fn take<F>(
        &self,
        name: &str,
        freshness: &Freshness,
        all: impl Fn() -> Vec<String>,
        ask: impl FnOnce(Vec<String>) -> F,
    ) -> Option<Option<T>>
    where
        F: Future<Output = Result<HashMap<String, T>, Error>>,
    {
        let expected = self.expects(name, &all);
        if !freshness.is_cached {
            self.forget(name);
            return None;
        }
        if !expected {
            return None;
        }

        let _turn = self.turn.lock().await;
        let (batch, begun) = {
            let mut state = self.state();
            if let Some((answered, described)) = state.ready.remove(name)
                && freshness.takes(answered, PREFETCH_MAX_AGE)
            {
                return Some(described);
            }

            let batch = state.batch(name, all());
            if !state.is_waiting(name) || batch.len() == 1 {
                state.remove_waiting(name);
                return None;
            }

            (batch, state.begun)
        };

        let asked = Stamp::now();
        let answer = ask(batch.clone()).await;
        let mut state = self.state();
        // None of them is prefetched twice, whatever the answer. Names that were forgotten meanwhile stay so. If all names have
        // begun to wait again, others may have been written to since the call: the answer is only for the caller.
        let is_for = |other: &String| other == name || state.begun == begun;
        let batch: Vec<String> = batch.into_iter().filter(is_for).collect();
        let names: Vec<String> = batch.into_iter().filter(|name| state.remove_waiting(name)).collect();
        let mut described = match answer {
            Ok(described) => described,
            Err(error) => {
                // The error may concern any of them. Each is described alone now, and gets its own answer.
                tracing::debug!(%error, ?names, "cannot describe load balancers in one call; describing each separately");
                return None;
            }
        };

        for name in names {
            let of_name = described.remove(&name);
            state.ready.insert(name, (asked, of_name));
        }

        state.ready.remove(name).map(|(_, described)| described)
    }

    pub(super) fn begin(&self, all: &[String]) {
        let mut state = self.state();
        state.waiting = Some(all.iter().cloned().collect());
        state.ready.clear();
        state.begun += 1;
    }

    fn expects(&self, name: &str, all: impl Fn() -> Vec<String>) -> bool {
        let mut state = self.state();
        state.waiting.get_or_insert_with(|| all().into_iter().collect());
        state.is_waiting(name) || state.ready.contains_key(name)
    }

    pub(super) fn forget(&self, name: &str) {
        let mut state = self.state();
        state.remove_waiting(name);
        state.ready.remove(name);
    }
}
