//! Load balancers that are described before the turn of their Services comes, when all of them have to be looked at: when a
//! process has just started, and when Nodes have changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::Error;

use super::freshness::Freshness;
use super::sequence::Stamp;

/// How many are described at once.
const BATCH_SIZE: usize = 20;

/// How long a description waits for the turn of its Service. What else the looks read, one load balancer at a time, takes
/// minutes for hundreds of them within AWS's limits.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Descriptions of load balancers of one kind, by name; `None`: AWS has none of that name.
#[derive(Debug)]
pub(super) struct Prefetch<T> {
    state: Mutex<State<T>>,
    /// One asks at a time, so that those who wait find the answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T> {
    /// Names that nobody has looked at since the start, or since Nodes have changed; `None` before the first look.
    waiting: Option<BTreeSet<String>>,
    /// Described, and not looked at yet.
    ready: HashMap<String, (Stamp, Option<T>)>,
}

impl<T> Default for Prefetch<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: None,
                ready: HashMap::new(),
            }),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<T> State<T> {
    fn is_waiting(&self, name: &str) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.contains(name))
    }

    /// Takes a name off the list; whether it was on it.
    fn remove_waiting(&mut self, name: &str) -> bool {
        self.waiting.as_mut().is_some_and(|waiting| waiting.remove(name))
    }

    /// This name, and the next ones that wait.
    fn batch(&self, name: &str) -> Vec<String> {
        let others = self.waiting.iter().flatten().filter(|other| *other != name).cloned();
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

    /// The description of this load balancer, if this is the first look at it since everyone has to be looked at: made
    /// ahead for another one's sake, or now, together with others that wait. Those are what `all` names at the very first
    /// look, or [`Prefetch::begin`] since.
    ///
    /// `None` for a fresh look, from the second look on, and where there are no others or they could not be described
    /// together: whoever asks then describes it alone.
    pub(super) async fn take<F>(
        &self,
        name: &str,
        freshness: &Freshness,
        all: impl FnOnce() -> BTreeSet<String>,
        ask: impl FnOnce(Vec<String>) -> F,
    ) -> Option<Option<T>>
    where
        F: Future<Output = Result<HashMap<String, T>, Error>>,
    {
        let expected = self.expects(name, all);
        if !freshness.is_cached() {
            self.forget(name);
            return None;
        }
        if !expected {
            return None;
        }
        let _turn = self.turn.lock().await;
        let batch = {
            let mut state = self.state();
            if let Some((answered, described)) = state.ready.remove(name)
                && freshness.takes_prefetched(answered, MAX_AGE)
            {
                return Some(described);
            }
            let batch = state.batch(name);
            if !state.is_waiting(name) || batch.len() == 1 {
                state.remove_waiting(name);
                return None;
            }
            batch
        };
        let asked = Stamp::now();
        let answer = ask(batch.clone()).await;
        let mut state = self.state();
        // Whatever the answer was, none of them is asked for twice ahead. What was forgotten meanwhile stays so.
        let names: Vec<String> = batch.into_iter().filter(|name| state.remove_waiting(name)).collect();
        let mut described = match answer {
            Ok(described) => described,
            Err(error) => {
                // It may be about any of them. Each is described alone now, and gets its own answer.
                tracing::debug!(%error, ?names, "load balancers could not be described together");
                return None;
            }
        };
        for name in names {
            let of_name = described.remove(&name);
            state.ready.insert(name, (asked, of_name));
        }
        state.ready.remove(name).map(|(_, described)| described)
    }

    fn expects(&self, name: &str, all: impl FnOnce() -> BTreeSet<String>) -> bool {
        let mut state = self.state();
        state.waiting.get_or_insert_with(all);
        state.is_waiting(name) || state.ready.contains_key(name)
    }

    /// Everyone has to be looked at again: of `all` none has been described since now.
    pub(super) fn begin(&self, all: BTreeSet<String>) {
        let mut state = self.state();
        state.waiting = Some(all);
        state.ready.clear();
    }

    /// What was said of this load balancer so far does not count.
    pub(super) fn forget(&self, name: &str) {
        let mut state = self.state();
        state.remove_waiting(name);
        state.ready.remove(name);
    }
}
