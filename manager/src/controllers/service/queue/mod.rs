//! When Services are reconciled, and their state between reconciliations.

pub mod creation_queue;
pub(super) mod node_changes;
pub mod reported;
pub mod service_state;

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::action::{ServiceAction, action};
use super::spec::request;
use service_state::{ServiceState, SpecFingerprint};

/// Services that may be queued. Each costs a task of a few KiB. Beyond that, even a Service that a user changes waits
/// outside of this queue.
pub const MAX_WAITING: u16 = 1024;

/// How often queued reconciliations check whether a change of their Service lets them leave the queue. All check at the
/// same time: hundreds of timers at different times would wake a processor hundreds of times a second.
const RECHECK: Duration = Duration::from_secs(1);

/// The workers, and which Service gets the next one.
///
/// After a start, and after a change of Nodes, all Services are reconciled. With this manager's share of AWS's read
/// budget that takes minutes for hundreds of load balancers. A Service that a user creates, changes or deletes does not
/// wait for them: background reconciliations leave one worker free. Deletions run one at a time, so the others wait
/// before they take a worker.
#[derive(Debug)]
pub struct WorkerPool {
    all: Semaphore,
    /// Permits for background reconciliations: one less than workers, at least one. A holder of one waits for one of
    /// `all` next, which no holder of `all` waits for: the order prevents a deadlock.
    background: Semaphore,
    deletion: Semaphore,
    /// Queued reconciliations check at whole multiples of [`RECHECK`] after this.
    created: Instant,
}

/// A worker; it is released when this is dropped.
#[derive(Debug)]
#[must_use = "the worker is released when this is dropped"]
pub struct WorkerPermit<'a> {
    _first: Option<SemaphorePermit<'a>>,
    _worker: Option<SemaphorePermit<'a>>,
}

impl WorkerPool {
    /// `workers` is at least 1. A single worker serves users and background.
    pub fn new(workers: u16) -> Self {
        let workers = usize::from(workers.max(1));
        Self {
            all: Semaphore::new(workers),
            background: Semaphore::new((workers - 1).max(1)),
            deletion: Semaphore::new(1),
            created: Instant::now(),
        }
    }

    /// Waits for a worker, first come, first served. `requested`: a user waits for the Service; it is checked again
    /// while queued.
    pub async fn acquire(&self, requested: impl Fn() -> bool) -> WorkerPermit<'_> {
        let background = match requested() {
            true => None,
            false => self.acquire_while(&self.background, requested).await,
        };
        self.worker(background).await
    }

    /// Waits for a worker for a deletion. If `is_deleted` turns false, the Service does not wait for other deletions.
    pub async fn acquire_for_deletion(&self, is_deleted: impl Fn() -> bool) -> WorkerPermit<'_> {
        let first = self.acquire_while(&self.deletion, || !is_deleted()).await;
        self.worker(first).await
    }

    async fn worker<'a>(&'a self, first: Option<SemaphorePermit<'a>>) -> WorkerPermit<'a> {
        // The semaphore is never closed.
        let worker = self.all.acquire().await.ok();
        WorkerPermit {
            _first: first,
            _worker: worker,
        }
    }

    /// A permit of this semaphore; `None` if the caller has left its class meanwhile.
    async fn acquire_while<'a>(
        &self,
        waiting: &'a Semaphore,
        has_left: impl Fn() -> bool,
    ) -> Option<SemaphorePermit<'a>> {
        let mut permit = std::pin::pin!(waiting.acquire());
        loop {
            tokio::select! {
                biased;
                permit = &mut permit => return permit.ok(),
                () = sleep_until(self.next_check()) => {}
            }
            if has_left() {
                return None;
            }
        }
    }

    fn next_check(&self) -> Instant {
        let periods = self.created.elapsed().as_millis() / RECHECK.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);

        self.created + RECHECK * periods.saturating_add(1)
    }
}

/// Whether a user waits for this Service: it is deleted, has no address yet, or has changed since the last
/// reconciliation (before the first one: since it was queued, `seen`). An unmanaged Service takes no time.
pub fn is_requested(service: &Service, state: &ServiceState, seen: &SpecFingerprint) -> bool {
    match action(service) {
        ServiceAction::Ignore | ServiceAction::Delete => true,
        ServiceAction::Ensure => {
            let known = state.spec().unwrap_or(*seen);
            request::kind_in_status(service).is_none() || known != SpecFingerprint::of(service)
        }
    }
}

#[cfg(test)]
mod keyed;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deletions_share_one_worker() {
        let turns = WorkerPool::new(2);
        let deleted = turns.acquire_for_deletion(|| true).await;
        assert!(turns.acquire_for_deletion(|| true).now_or_never().is_none());
        drop(turns.acquire(|| true).now_or_never().unwrap());
        drop(deleted);
        assert!(turns.acquire_for_deletion(|| true).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_not_deleted_any_more_waits_for_no_deletion() {
        let turns = WorkerPool::new(2);
        let _deleted = turns.acquire_for_deletion(|| true).await;
        let waiting = turns.acquire_for_deletion(|| false);
        assert!(tokio::time::timeout(2 * RECHECK, waiting).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_service_gets_a_worker_while_background_waits() {
        let turns = WorkerPool::new(3);
        let held: Vec<WorkerPermit<'_>> = vec![turns.acquire(|| false).await, turns.acquire(|| false).await];
        assert!(turns.acquire(|| false).now_or_never().is_none());
        let requested = turns.acquire(|| true).now_or_never().unwrap();
        assert!(turns.acquire(|| true).now_or_never().is_none(), "there are three");
        drop((held, requested));
        assert!(turns.acquire(|| false).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_worker_serves_users_and_background() {
        let turns = WorkerPool::new(1);
        let held = turns.acquire(|| false).await;
        assert!(turns.acquire(|| true).now_or_never().is_none());
        drop(held);
        let requested = turns.acquire(|| true).await;
        assert!(turns.acquire(|| false).now_or_never().is_none());
        drop(requested);
        assert!(WorkerPool::new(0).acquire(|| false).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_changed_while_queued_counts_as_requested() {
        let turns = Arc::new(WorkerPool::new(2));
        let changed = Arc::new(AtomicBool::new(false));
        let held = turns.acquire(|| false).await;
        let (waiting, requested) = (Arc::clone(&turns), Arc::clone(&changed));
        let waiter = tokio::spawn(async move {
            let _turn = waiting.acquire(|| requested.load(Ordering::Relaxed)).await;
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiter.is_finished());
        changed.store(true, Ordering::Relaxed);
        tokio::time::sleep(2 * RECHECK).await;
        assert!(waiter.is_finished());
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn queued_services_check_at_the_same_times() {
        let turns = Arc::new(WorkerPool::new(2));
        let start = Instant::now();
        let held = turns.acquire(|| false).await;
        let checks = Arc::new(std::sync::Mutex::new(Vec::new()));
        for _ in 0..4 {
            let (turns, checks) = (Arc::clone(&turns), Arc::clone(&checks));
            tokio::spawn(async move {
                let check = || {
                    checks.lock().unwrap().push(start.elapsed().as_millis());
                    false
                };
                let _turn = turns.acquire(check).await;
            });
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);

        // The first check of each is before it is queued.
        assert_eq!(
            *checks.lock().unwrap(),
            [0, 300, 600, 900, 1000, 1000, 1000, 1000, 2000, 2000, 2000, 2000]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn services_get_workers_in_order() {
        let turns = Arc::new(WorkerPool::new(2));
        let held = turns.acquire(|| false).await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for number in 0..5 {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiters.push(tokio::spawn(async move {
                let _turn = turns.acquire(|| false).await;
                order.lock().unwrap().push(number);
            }));
            // Long enough for the others to have checked whether a user waits for them.
            tokio::time::sleep(3 * RECHECK / 2).await;
        }
        drop(held);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_new_changed_or_deleted_service_is_requested() {
        let service = |spec: Value, finalizers: Value, status: Value| -> Service {
            let metadata = json!({"name": "web", "finalizers": finalizers});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
        };
        let held = || json!([super::super::spec::names::FINALIZER]);
        let has = || json!({"loadBalancer": {"ingress": [{"hostname": "a.us-east-1.elb.amazonaws.com"}]}});
        let standing = service(json!({"type": "LoadBalancer"}), held(), has());
        let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        let changed = service(local, held(), has());
        let (seen, mut state) = (SpecFingerprint::of(&standing), ServiceState::default());
        assert!(!is_requested(&standing, &state, &seen), "a start");
        assert!(is_requested(&changed, &state, &seen), "changed while it waits");
        state.begin(&standing);
        assert!(!is_requested(&standing, &state, &seen), "Nodes have changed");
        assert!(
            is_requested(&changed, &state, &SpecFingerprint::of(&changed)),
            "changed"
        );
        let new = service(json!({"type": "LoadBalancer"}), json!([]), json!({}));
        assert!(
            is_requested(&new, &ServiceState::default(), &SpecFingerprint::of(&new)),
            "new"
        );
        let going = service(json!({"type": "ClusterIP"}), held(), has());
        assert!(is_requested(&going, &state, &seen), "it goes");
        let none = service(json!({"type": "ClusterIP"}), json!([]), json!({}));
        assert!(
            is_requested(&none, &ServiceState::default(), &SpecFingerprint::of(&none)),
            "none of ours"
        );
    }
}
