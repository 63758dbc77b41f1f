//! `workqueue_*`: what waits for a controller, and how long its work takes.
//!
//! ```text
//! queue.add(key) ─▶ waits ─▶ let _working = queue.start(key); … ─▶ dropped: done
//! queue.retry() when a key is requeued after a failure; queue.forget(key) when it needs nothing any more
//! ```
//!
//! A controller that does not see its own queue only calls [`Queue::start`]: then what it starts counts as added, and
//! nothing is said about waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::AtomicU64;
use tokio::time::Instant;

use super::buckets;
use super::catalog::Catalog;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabel {
    /// The incumbent's name of it: `Nodes`, `service`, `Routes`, `tagging-controller`.
    pub name: &'static str,
}

type Histograms = Family<QueueLabel, Histogram, fn() -> Histogram>;
type Seconds = Family<QueueLabel, Gauge<f64, AtomicU64>>;

#[derive(Debug, Clone)]
pub(super) struct Queues {
    depth: Family<QueueLabel, Gauge>,
    adds: Family<QueueLabel, Counter>,
    retries: Family<QueueLabel, Counter>,
    waited: Histograms,
    worked: Histograms,
    unfinished: Seconds,
    longest: Seconds,
    all: Arc<Mutex<BTreeMap<&'static str, Queue>>>,
}

impl Queues {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        const NAME: &[&str] = &["name"];

        let durations: fn() -> Histogram = || Histogram::new(buckets::work_queue());
        Self {
            depth: catalog.labelled("workqueue_depth", NAME, "Keys in the queue"),
            adds: catalog.labelled("workqueue_adds", NAME, "Keys added"),
            retries: catalog.labelled("workqueue_retries", NAME, "Keys requeued after a failure"),
            waited: catalog.family(
                "workqueue_queue_duration_seconds",
                NAME,
                "Time that a key waits in the queue",
                Family::new_with_constructor(durations),
            ),
            worked: catalog.family(
                "workqueue_work_duration_seconds",
                NAME,
                "Time to process a key",
                Family::new_with_constructor(durations),
            ),
            unfinished: catalog.labelled(
                "workqueue_unfinished_work_seconds",
                NAME,
                "Time spent on all keys in progress, summed",
            ),
            longest: catalog.labelled(
                "workqueue_longest_running_processor_seconds",
                NAME,
                "Processing time so far of the key that has been in progress longest",
            ),
            all: Arc::default(),
        }
    }

    /// The queue of this name; the same one each time.
    pub(super) fn queue(&self, name: &'static str) -> Queue {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let label = QueueLabel { name };
            Queue(Arc::new(Inner {
                adds: self.adds.get_or_create_owned(&label),
                retries: self.retries.get_or_create_owned(&label),
                waited: self.waited.get_or_create_owned(&label),
                worked: self.worked.get_or_create_owned(&label),
                state: Mutex::default(),
            }))
        };
        all.entry(name).or_insert_with(make).clone()
    }

    /// Updates the gauges that depend on the time of the scrape.
    pub(super) fn refresh(&self, now: Instant) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, queue) in all {
            let label = QueueLabel { name };
            let state = queue.state();
            let ages = || {
                let begun = state.working.values();
                begun.map(|begun| now.saturating_duration_since(*begun).as_secs_f64())
            };

            self.depth
                .get_or_create(&label)
                .set(i64::try_from(state.waiting.len()).unwrap_or(i64::MAX));
            self.unfinished
                .get_or_create(&label)
                .set(ages().fold(0.0, |all, age| all + age));
            self.longest.get_or_create(&label).set(ages().fold(0.0, f64::max));
        }
    }
}

#[derive(Debug, Clone)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<String, Instant>,
    working: BTreeMap<u64, Instant>,
    last: u64,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key wants work. While it waits, adding it again changes nothing.
    pub fn add(&self, key: &str) {
        self.add_since(key, Instant::now());
    }

    /// A key has wanted work since this moment.
    pub fn add_since(&self, key: &str, since: Instant) {
        let mut state = self.state();
        if !state.waiting.contains_key(key) {
            state.waiting.insert(key.to_owned(), since);
            self.0.adds.inc();
        }
    }

    /// Counts a retry. [`Queue::add`] records the start of the wait.
    pub fn retry(&self) {
        self.0.retries.inc();
    }

    /// A key needs nothing any more, though it waited.
    pub fn forget(&self, key: &str) {
        self.state().waiting.remove(key);
    }

    /// Nothing waits any more: the queue has ended.
    pub fn clear(&self) {
        self.state().waiting.clear();
    }

    /// Work on a key begins; it ends when the answer is dropped.
    #[must_use = "the work ends when this is dropped"]
    pub fn start(&self, key: &str) -> Working {
        let now = Instant::now();
        let mut state = self.state();
        match state.waiting.remove(key) {
            Some(added) => self.0.waited.observe(now.duration_since(added).as_secs_f64()),
            None => {
                self.0.adds.inc();
            }
        }

        state.last += 1;

        let id = state.last;
        state.working.insert(id, now);
        drop(state);

        Working {
            queue: self.clone(),
            id,
        }
    }
}

#[derive(Debug)]
pub struct Working {
    queue: Queue,
    id: u64,
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(begun) = self.queue.state().working.remove(&self.id) {
            self.queue.0.worked.observe(begun.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn waiting_working_and_done_are_told_apart() {
        let metrics = Metrics::new();
        let queue = metrics.queue("Nodes");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        queue.add("gone");
        queue.forget("gone");
        tokio::time::advance(Duration::from_secs(2)).await;
        let first = queue.start("a");
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = queue.start("unannounced");
        tokio::time::advance(Duration::from_secs(1)).await;
        let text = metrics.prometheus().unwrap();
        for line in [
            "workqueue_depth{name=\"Nodes\"} 1",
            "workqueue_adds_total{name=\"Nodes\"} 4",
            "workqueue_queue_duration_seconds_sum{name=\"Nodes\"} 2.0",
            "workqueue_queue_duration_seconds_count{name=\"Nodes\"} 1",
            "workqueue_unfinished_work_seconds{name=\"Nodes\"} 5.0",
            "workqueue_longest_running_processor_seconds{name=\"Nodes\"} 4.0",
            "workqueue_work_duration_seconds_count{name=\"Nodes\"} 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        drop((first, second));
        queue.retry();
        let text = metrics.prometheus().unwrap();
        for line in [
            "workqueue_work_duration_seconds_sum{name=\"Nodes\"} 5.0",
            "workqueue_unfinished_work_seconds{name=\"Nodes\"} 0.0",
            "workqueue_retries_total{name=\"Nodes\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
