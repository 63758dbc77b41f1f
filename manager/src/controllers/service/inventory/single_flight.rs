//! Shared answers of AWS by key, such as a group's name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_aws::Error;

use super::freshness::{Freshness, MAX_AGE};
use super::sequence::Stamp;

#[derive(Debug)]
pub(super) struct SingleFlight<V> {
    kept: Mutex<Kept<V>>,
    /// One call at a time; the waiting callers use its answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Kept<V> {
    answers: HashMap<String, (Stamp, V)>,
    dropped: Option<Stamp>,
}

impl<V> Default for SingleFlight<V> {
    fn default() -> Self {
        Self {
            kept: Mutex::new(Kept {
                answers: HashMap::new(),
                dropped: None,
            }),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<V: Clone> SingleFlight<V> {
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

        if freshness.is_cached() {
            missing.extend(ahead());
        }

        let asked = Stamp::now();
        let answers = ask(missing).await?;
        let of_keys = answers.iter().filter(|(key, _)| keys.contains(*key));
        found.extend(of_keys.map(|(key, value)| (key.clone(), value.clone())));
        self.keep(asked, answers);

        Ok(found)
    }

    fn found(&self, keys: &BTreeSet<String>, freshness: &Freshness) -> BTreeMap<String, V> {
        let kept = self.kept();
        let answer = |key: &String| {
            let (answered, value) = kept.answers.get(key)?;
            freshness.takes_shared(*answered).then(|| (key.clone(), value.clone()))
        };
        keys.iter().filter_map(answer).collect()
    }

    /// Whether there is an answer that could be used now.
    pub(super) fn has(&self, key: &str) -> bool {
        let now = Stamp::now();
        let kept = self.kept();
        kept.answers
            .get(key)
            .is_some_and(|(answered, _)| answered.age(now) < MAX_AGE)
    }

    pub(super) fn values(&self) -> Vec<V> {
        self.kept().answers.values().map(|(_, value)| value.clone()).collect()
    }

    /// Keeps answers, unless they were invalidated since the call.
    fn keep(&self, asked: Stamp, answers: BTreeMap<String, V>) {
        let mut kept = self.kept();
        kept.answers.retain(|_, (answered, _)| answered.age(asked) < MAX_AGE);
        if kept.dropped.is_none_or(|dropped| asked.is_after(dropped)) {
            let with_moment = answers.into_iter().map(|(key, value)| (key, (asked, value)));
            kept.answers.extend(with_moment);
        }
    }

    /// Drops all answers, also those under way.
    pub(super) fn invalidate(&self) {
        let mut kept = self.kept();
        kept.answers.clear();
        kept.dropped = Some(Stamp::now());
    }
}
