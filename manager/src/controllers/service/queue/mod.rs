//! When Services are reconciled, and their state between reconciliations.

pub mod creation_queue;
pub mod first_full;
pub mod keyed;
pub(super) mod node_changes;
pub mod reported;
pub mod service_state;
pub mod watch;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Service;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::action::{ServiceAction, action, has_finalizer};
use super::spec::request;
use super::writer;
use crate::metrics;
use keyed::{Class, Due, Queue};
use service_state::{ServiceState, SpecFingerprint};

/// The [`Queue`] of Services, for workers that wait, with its metrics. A key is `namespace/name`.
///
/// Only keys are held: a key costs some 100 bytes, and a Service is read from the cache when its turn begins.
#[derive(Debug)]
pub struct WorkQueue {
    keys: Mutex<Queue<String>>,
    changed: Notify,
    metrics: metrics::Queue,
}

impl WorkQueue {
    /// `workers`: Services that are reconciled at the same time, at least one.
    pub fn new(workers: usize, metrics: metrics::Queue) -> Self {
        Self {
            keys: Mutex::new(Queue::new(workers)),
            changed: Notify::new(),
            metrics,
        }
    }

    fn keys(&self) -> MutexGuard<'_, Queue<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds keys that are due now.
    pub fn add(&self, keys: impl IntoIterator<Item = (String, Class)>) {
        let (mut queue, now) = (self.keys(), Instant::now());
        for (key, class) in keys {
            if queue.add(key.clone(), Due { class, at: now }, now) {
                self.metrics.add(&key);
            }
        }
        drop(queue);

        self.changed.notify_waiters();
    }

    /// Waits for the next turn of any key. It lasts until [`WorkQueue::finish`].
    pub async fn next(&self) -> (String, Class) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();

            let (turn, next_due) = self.start();
            if let Some(turn) = turn {
                return turn;
            }

            let due = async {
                match next_due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = due => {}
            }
        }
    }

    fn start(&self) -> (Option<(String, Class)>, Option<Instant>) {
        let mut queue = self.keys();
        for (key, since) in queue.enlist_due(Instant::now()) {
            self.metrics.add_since(&key, since);
        }

        (queue.start(), queue.next_due())
    }

    /// Ends the turn of a key, which is due again at `next`, if nothing adds it before.
    pub fn finish(&self, key: &String, next: Option<Due>) {
        if self.keys().finish(key, next, Instant::now()) {
            self.metrics.add(key);
        }
        self.changed.notify_waiters();
    }

    /// The keys that have a turn.
    pub fn running(&self) -> BTreeSet<String> {
        self.keys().running().cloned().collect()
    }

    /// The keys that have a turn, and those that wait for a worker, in the order of their turns.
    pub fn order(&self) -> Vec<String> {
        let keys = self.keys();
        keys.running().chain(keys.due()).cloned().collect()
    }
}

/// Why a Service that was listed or has changed is reconciled now; `None` if nothing that matters has changed since its
/// last reconciliation. `is_listed`: it is in a list of all Services, so it may be as it was.
pub fn class_of(service: &Service, state: &ServiceState, is_listed: bool) -> Option<Class> {
    match action(service) {
        // It costs nothing, unless it has requested a load balancer before.
        ServiceAction::Ignore => Some(Class::Asked),
        ServiceAction::Delete => Some(Class::Deletion),
        ServiceAction::Ensure => match state.spec() {
            None if is_listed && request::kind_in_status(service).is_some() => Some(Class::Start),
            Some(spec) if spec == SpecFingerprint::of(service) => {
                lacks_own_write(service, state).then_some(Class::Asked)
            }
            // New, or changed since the last reconciliation or the list.
            None | Some(_) => Some(Class::Asked),
        },
    }
}

/// Whether somebody has removed the finalizer or the address.
fn lacks_own_write(service: &Service, state: &ServiceState) -> bool {
    let done = state.done.as_ref();
    !has_finalizer(service) || done.is_some_and(|done| !writer::has_address(service, &done.hostname))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::service_state::Done;
    use super::*;
    use crate::metrics::Metrics;

    fn queue(workers: usize) -> (WorkQueue, Metrics) {
        let metrics = Metrics::new();
        (WorkQueue::new(workers, metrics.queue("service")), metrics)
    }

    fn key(name: &str, class: Class) -> [(String, Class); 1] {
        [(name.to_owned(), class)]
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_gets_a_key_when_it_is_added_and_when_it_is_due() {
        let queue = Arc::new(queue(2).0);
        let waiting = Arc::clone(&queue);
        let waiting = tokio::spawn(async move { waiting.next().await });
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!waiting.is_finished());
        queue.add(key("a/b", Class::Register));
        let (name, class) = waiting.await.unwrap();
        assert_eq!((name.as_str(), class), ("a/b", Class::Register));

        let (class, at) = (Class::Drift, Instant::now() + Duration::from_secs(1800));
        queue.finish(&name, Some(Due { class, at }));
        assert_eq!(queue.next().await, (name, class));
        assert!(Instant::now() >= at);
    }

    #[tokio::test(start_paused = true)]
    async fn each_worker_that_waits_gets_a_key() {
        let queue = Arc::new(queue(3).0);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add(["a", "b", "c"].map(|name| (name.to_owned(), Class::Asked)));
        for worker in workers {
            worker.await.unwrap();
        }
        assert!(queue.next().now_or_never().is_none());
    }

    /// As client-go's queue counts: a key counts when it is due, and a key that has a turn when that ends.
    #[tokio::test(start_paused = true)]
    async fn the_metrics_count_keys_that_are_due() {
        let (queue, metrics) = queue(2);
        let has = |line: &str| {
            let text = metrics.prometheus().unwrap();
            assert!(text.contains(line), "{line} is missing in\n{text}");
        };
        queue.add(key("a/b", Class::Start));
        queue.add(key("a/b", Class::Asked));
        has("workqueue_depth{name=\"service\"} 1");
        has("workqueue_adds_total{name=\"service\"} 1");

        let (name, _) = queue.next().await;
        let working = metrics.queue("service").start(&name);
        has("workqueue_depth{name=\"service\"} 0");
        queue.add(key("a/b", Class::Asked));
        has("workqueue_depth{name=\"service\"} 0");
        drop(working);
        queue.finish(&name, None);
        has("workqueue_depth{name=\"service\"} 1");
        has("workqueue_adds_total{name=\"service\"} 2");

        // A key that becomes due while all workers are busy waits since then.
        let (name, class) = queue.next().await;
        drop(metrics.queue("service").start(&name));
        let at = Instant::now() + Duration::from_secs(5);
        queue.finish(&name, Some(Due { class, at }));
        tokio::time::advance(Duration::from_secs(8)).await;
        let (name, _) = queue.next().await;
        drop(metrics.queue("service").start(&name));
        has("workqueue_queue_duration_seconds_sum{name=\"service\"} 3.0");
    }

    #[test]
    fn the_class_is_why_a_service_is_reconciled() {
        let service = |spec: Value, finalizers: Value, status: Value| -> Service {
            let metadata = json!({"name": "web", "finalizers": finalizers});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
        };
        let held = || json!([super::super::spec::names::FINALIZER]);
        let has = || json!({"loadBalancer": {"ingress": [{"hostname": "a.us-east-1.elb.amazonaws.com"}]}});
        let standing = service(json!({"type": "LoadBalancer"}), held(), has());
        let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        let changed = service(local, held(), has());
        let mut state = ServiceState::default();
        assert_eq!(class_of(&standing, &state, true), Some(Class::Start));
        let class = class_of(&changed, &state, false);
        assert_eq!(class, Some(Class::Asked), "changed while it waits");
        state.begin(&standing);
        for is_listed in [true, false] {
            assert_eq!(class_of(&standing, &state, is_listed), None, "it has its backoff");
            assert_eq!(class_of(&changed, &state, is_listed), Some(Class::Asked), "changed");
        }
        let settled = |hostname: &str| Done {
            targets: 0,
            at: Instant::now(),
            hostname: hostname.to_owned(),
        };
        state.settle(settled("a.us-east-1.elb.amazonaws.com"), Arc::default());
        let mut released = standing.clone();
        released.metadata.finalizers = None;
        for is_listed in [true, false] {
            assert_eq!(class_of(&standing, &state, is_listed), None, "its labels");
            assert_eq!(class_of(&released, &state, is_listed), Some(Class::Asked));
        }
        state.settle(settled("b.us-east-1.elb.amazonaws.com"), Arc::default());
        assert_eq!(class_of(&standing, &state, false), Some(Class::Asked), "its address");

        let new = service(json!({"type": "LoadBalancer"}), json!([]), json!({}));
        let state = ServiceState::default();
        assert_eq!(class_of(&new, &state, true), Some(Class::Asked), "new");
        let going = service(json!({"type": "ClusterIP"}), held(), has());
        assert_eq!(class_of(&going, &state, false), Some(Class::Deletion));
        let none = service(json!({"type": "ClusterIP"}), json!([]), json!({}));
        assert_eq!(class_of(&none, &state, true), Some(Class::Asked));
    }
}
