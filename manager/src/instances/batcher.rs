//! Batches concurrent describes. A key that is already in flight waits for that batch's answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::Error;
use outrigger_aws::limit::Priority;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cache::Cache;
use super::describe::{Answers, Describer};
use super::key::{Answer, Key};

/// How long a batch accepts keys.
const WINDOW: Duration = Duration::from_millis(20);

pub(super) struct Batcher {
    describer: Describer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cache: Cache,
    /// Batches that still accept keys: at most one per priority.
    open: HashMap<Priority, Arc<Batch>>,
    in_flight: Vec<Arc<Batch>>,
}

struct Batch {
    priority: Priority,
    inner: Mutex<Inner>,
    /// Told at each answered call, and closed by the end.
    progress: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    keys: BTreeSet<Key>,
    began: Option<Instant>,
    answers: HashMap<Key, Answer>,
    ended: bool,
}

impl Batch {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, key: &Key) -> bool {
        self.inner().keys.contains(key)
    }

    async fn wait(&self, keys: &[Key]) -> Answers {
        let mut progress = self.progress.subscribe();
        loop {
            progress.mark_unchanged();
            if let Some(answers) = self.try_take(keys) {
                return answers;
            }
            // The sender lives as long as `self`, so this cannot fail.
            let _ = progress.changed().await;
        }
    }

    fn try_take(&self, keys: &[Key]) -> Option<Answers> {
        let inner = self.inner();
        let lost = || {
            Answer::Failed(Error::unusable(
                "DescribeInstances",
                "the batched request ended without a result",
            ))
        };

        keys.iter()
            .map(|key| match inner.answers.get(key) {
                Some(answer) => Some((key.clone(), answer.clone())),
                None => inner.ended.then(|| (key.clone(), lost())),
            })
            .collect()
    }
}

/// Which batches a caller waits for, and for which of its keys.
type Waits = Vec<(Arc<Batch>, Vec<Key>)>;

/// Ends a batch on drop, also when its task is cancelled, so that no caller waits for ever.
struct Ending<'a>(&'a Batcher, &'a Arc<Batch>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight.retain(|batch| !Arc::ptr_eq(batch, self.1));
        if state
            .open
            .get(&self.1.priority)
            .is_some_and(|batch| Arc::ptr_eq(batch, self.1))
        {
            state.open.remove(&self.1.priority);
        }

        drop(state);
        self.1.inner().ended = true;
        self.1.progress.send_replace(());
    }
}

impl Batcher {
    pub(super) fn new(describer: Describer) -> Self {
        Self {
            describer,
            state: Mutex::default(),
        }
    }

    pub(super) fn describer(&self) -> &Describer {
        &self.describer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One answer per key, from calls that began at most `max_age` ago.
    pub(super) async fn answers(
        self: &Arc<Self>,
        keys: BTreeSet<Key>,
        priority: Priority,
        max_age: Duration,
    ) -> HashMap<Key, Answer> {
        let (mut answers, waits) = self.assign(keys, priority, max_age);
        for (batch, keys) in waits {
            answers.extend(batch.wait(&keys).await);
        }
        answers
    }

    /// The cached answers, and the batches that will answer the other keys.
    fn assign(
        self: &Arc<Self>,
        keys: BTreeSet<Key>,
        priority: Priority,
        max_age: Duration,
    ) -> (HashMap<Key, Answer>, Waits) {
        let now = Instant::now();
        let mut state = self.state();
        let mut answers = HashMap::new();
        let mut waits: Waits = state
            .joinable(priority, max_age, now)
            .into_iter()
            .map(|batch| (batch, Vec::new()))
            .collect();
        let mut new = Vec::new();

        for key in keys {
            if let Some(answer) = state.cache.fresh(&key, max_age, now) {
                answers.insert(key, answer);
            } else if let Some((_, keys)) = waits.iter_mut().find(|(batch, _)| batch.has(&key)) {
                keys.push(key);
            } else {
                new.push(key);
            }
        }

        if !new.is_empty() {
            let batch = state.open.entry(priority).or_insert_with(|| self.open(priority));
            batch.inner().keys.extend(new.iter().cloned());
            waits.push((Arc::clone(batch), new));
        }

        waits.retain(|(_, keys)| !keys.is_empty());

        (answers, waits)
    }

    /// Opens a batch, which is sent when its window closes. It runs in its own task, so that a caller that is dropped
    /// does not cancel the results of others.
    fn open(self: &Arc<Self>, priority: Priority) -> Arc<Batch> {
        let batch = Arc::new(Batch {
            priority,
            inner: Mutex::default(),
            progress: watch::Sender::default(),
        });
        let (batcher, in_flight) = (Arc::clone(self), Arc::clone(&batch));
        tokio::spawn(async move {
            let _ending = Ending(&batcher, &in_flight);
            tokio::time::sleep(WINDOW).await;
            batcher.send(&in_flight).await;
        });
        batch
    }

    async fn send(&self, batch: &Arc<Batch>) {
        let began = Instant::now();
        let keys = {
            let mut state = self.state();
            state.open.remove(&batch.priority);
            state.in_flight.push(Arc::clone(batch));
            state.cache.sweep(began);
            let mut inner = batch.inner();
            inner.began = Some(began);
            inner.keys.clone()
        };

        let living = |id: &_| self.state().cache.is_living(id);
        let publish = |answers: Answers| self.publish(batch, began, answers);
        batch.priority.run(self.describer.describe(keys, living, publish)).await;
    }

    fn publish(&self, batch: &Batch, began: Instant, answers: Answers) {
        let mut state = self.state();
        for (key, answer) in &answers {
            state.cache.put(key.clone(), answer, began);
        }
        drop(state);
        batch.inner().answers.extend(answers);
        batch.progress.send_replace(());
    }
}

impl State {
    /// Batches of this or a higher priority whose answers will be fresh enough. A batch of lower priority would wait behind
    /// other calls.
    fn joinable(&self, priority: Priority, max_age: Duration, now: Instant) -> Vec<Arc<Batch>> {
        let young = |batch: &&Arc<Batch>| match batch.inner().began {
            None => true,
            Some(began) => !max_age.is_zero() && now.saturating_duration_since(began) <= max_age,
        };
        let all = self.open.values().chain(&self.in_flight);
        all.filter(|batch| batch.priority <= priority)
            .filter(young)
            .cloned()
            .collect()
    }
}
