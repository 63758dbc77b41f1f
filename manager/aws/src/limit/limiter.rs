//! Waiting for a bucket's tokens, priority by priority.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::bucket::Bucket;
use super::bucket_size::Budget;
use super::task::{Priority, Waiting};

/// The bucket of one action or kind of action, and its waiting calls: by priority, then by order of arrival.
pub(super) struct Limiter {
    action: &'static str,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    bucket: Bucket,
    waiting: BTreeSet<Position>,
    arrivals: u64,
}

/// The position of a call in the queue: by priority, then by order of arrival.
pub(super) type Position = (Priority, u64);

/// A place in the queue. Dropping it removes it from the queue.
struct QueueEntry<'a> {
    limiter: &'a Limiter,
    at: Position,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.limiter.state().waiting.remove(&self.at);
        self.limiter.changed.notify_waiters();
    }
}

impl Limiter {
    pub(super) fn new(action: &'static str, budget: Budget) -> Self {
        Self {
            action,
            state: Mutex::new(State {
                bucket: Bucket::full(budget, Instant::now()),
                waiting: BTreeSet::new(),
                arrivals: 0,
            }),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The position of a call that arrives now. It keeps this one until it ends, however often it is sent.
    pub(super) fn arrive(&self, priority: Priority) -> Position {
        let mut state = self.state();
        state.arrivals += 1;
        (priority, state.arrivals)
    }

    /// Waits for a token and takes it. It returns in a poll that began while the call was seen to wait, so that
    /// [`WaitFlag::is_waiting`](super::WaitFlag::is_waiting) is asked before each time that the call is sent.
    pub(super) async fn acquire(&self, position: Position) {
        let _waiting = Waiting::begin();
        self.state().waiting.insert(position);
        let place = QueueEntry {
            limiter: self,
            at: position,
        };
        yield_now().await;
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();

            let next = {
                let mut state = self.state();
                let first = state.waiting.first() == Some(&place.at);
                first.then(|| state.bucket.take(Instant::now()))
            };

            match next {
                Some(Ok(())) => return,
                Some(Err(at)) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// How long a call of this priority would wait now, behind the waiting calls and `more` others.
    pub(super) fn expected_wait(&self, priority: Priority, more: u32) -> Duration {
        let state = self.state();
        let ahead = state.waiting.range(..=(priority, u64::MAX)).count();
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(more);
        state.bucket.expected_wait(Instant::now(), ahead)
    }

    /// AWS throttled a call that was sent at `sent`.
    pub(super) fn throttled(&self, sent: Instant) {
        let mut state = self.state();
        let first = !state.bucket.is_throttled();
        let pause = state.bucket.throttled(sent, Instant::now(), fastrand::f64());
        drop(state);
        if let Some(pause) = pause.filter(|_| first) {
            tracing::warn!(
                action = self.action,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "AWS throttles this action; its calls wait, calls of other actions continue"
            );
        }
    }

    /// AWS throttled another kind of calls: this kind leaves more of what all have in common.
    pub(super) fn give_way(&self) {
        self.state().bucket.halve(Instant::now());
    }

    /// AWS answered a call that was sent at `sent`, whatever it said.
    pub(super) fn answered(&self, sent: Instant) {
        if self.state().bucket.answered(sent) {
            tracing::info!(action = self.action, "AWS no longer throttles this action");
        }
    }
}
