//! Describes load balancers in batches before their Services are reconciled: after a start, and after a change of
//! Nodes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::Error;

use super::freshness::Freshness;
use super::sequence::Stamp;

const BATCH_SIZE: usize = 20;

/// How long a description is kept for its Service. The other reads, one load balancer at a time, take minutes for
/// hundreds of them within AWS's limits.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Descriptions of load balancers of one kind, by name; `None`: AWS has none of that name.
#[derive(Debug)]
pub(super) struct Prefetch<T> {
    state: Mutex<State<T>>,
    /// One call at a time; the waiting callers use its answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T> {
    /// Names that were not observed since the start or the last change of Nodes; `None` before the first observation.
    waiting: Option<BTreeSet<String>>,
    /// Described and not used yet.
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

    /// Removes a name; returns whether it was there.
    fn remove_waiting(&mut self, name: &str) -> bool {
        self.waiting.as_mut().is_some_and(|waiting| waiting.remove(name))
    }

    /// This name and others that wait.
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

    /// The description of this load balancer, at its first observation since all have to be observed: prefetched, or
    /// read now together with others that wait. Those are the names of `all` at the very first observation, or of
    /// [`Prefetch::begin`] since.
    ///
    /// `None` for fresh reads, from the second observation on, and if there are no others or the batch failed: the
    /// caller then describes it alone.
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
        // None of them is prefetched twice, whatever the answer. Names that were forgotten meanwhile stay so.
        let names: Vec<String> = batch.into_iter().filter(|name| state.remove_waiting(name)).collect();
        let mut described = match answer {
            Ok(described) => described,
            Err(error) => {
                // The error may concern any of them. Each is described alone now, and gets its own answer.
                tracing::debug!(%error, ?names, "cannot describe load balancers in one call; describing each alone");
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

    /// Starts over: all load balancers have to be described again.
    pub(super) fn begin(&self, all: BTreeSet<String>) {
        let mut state = self.state();
        state.waiting = Some(all);
        state.ready.clear();
    }

    /// Drops the description of a load balancer.
    pub(super) fn forget(&self, name: &str) {
        let mut state = self.state();
        state.remove_waiting(name);
        state.ready.remove(name);
    }
}
