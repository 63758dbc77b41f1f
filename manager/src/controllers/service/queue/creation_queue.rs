//! The queue of Services that wait for the creation of a load balancer.
//!
//! AWS lets an account create one load balancer every five seconds, after a small burst. A Service does not block a
//! worker for that: it gets a position in the queue with the expected wait, and is reconciled again when a slot is
//! near. Slots are given in order; several Services have one while the burst lasts. A slot ends when the call is sent
//! ([`CreationQueue::done`]): from then on AWS's budget counts it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::spec::desired::Desired;

/// A call with a shorter expected wait is sent at once.
const SEND_BELOW: Duration = Duration::from_millis(500);

/// The shortest time until a waiting Service is reconciled again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// A longer wait is reported by an Event.
const REPORT_ABOVE: Duration = Duration::from_secs(5);

/// A Service that does not return within this time loses its position or slot: it is deleted, or needs no load balancer
/// any more.
const EXPIRY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The Service has a slot until [`CreationQueue::done`].
    Now,
    Later {
        wait: Duration,
        ahead: usize,
        report: bool,
    },
}

/// The queue for one of AWS's two kinds of load balancers. Each has a limit of its own.
#[derive(Debug, Default)]
pub struct CreationQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Services with a slot, and since when.
    slots: Vec<(String, Instant)>,
}

#[derive(Debug)]
struct Waiting {
    uid: String,
    /// When the Service is reconciled again.
    due: Instant,
    reported: bool,
}

impl CreationQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a slot. `wait` returns the expected wait of a call that is sent after so many others.
    pub fn request(&self, uid: &str, wait: impl Fn(u32) -> Duration, now: Instant) -> Slot {
        let wait = |before: usize| wait(u32::try_from(before).unwrap_or(u32::MAX));
        let mut state = self.state();

        // A Service that does not return, or never ends its slot, blocks no other.
        let is_expired = |since: Instant| now.saturating_duration_since(since) >= EXPIRY;
        state.waiting.retain(|other| other.uid == uid || !is_expired(other.due));
        state.slots.retain(|(_, since)| !is_expired(*since));

        let slot = state.slots.iter().position(|(other, _)| other == uid);
        let position = state.waiting.iter().position(|position| position.uid == uid);
        // A Service that had a slot but cannot use it yet stays first.
        let ahead = slot.map_or_else(|| position.unwrap_or(state.waiting.len()), |_| 0);
        let others = state.slots.len() - usize::from(slot.is_some());
        let wait = slot.map_or_else(|| wait(others + ahead), |_| wait(0));
        if wait <= SEND_BELOW {
            state.waiting.retain(|position| position.uid != uid);
            if slot.is_none() {
                state.slots.push((uid.to_owned(), now));
            }
            return Slot::Now;
        }

        state.slots.retain(|(other, _)| other != uid);

        let wait = wait.max(SHORTEST_WAIT);
        let before = position.and_then(|position| state.waiting.get(position));
        let known = before.is_some_and(|before| before.reported);
        let reported = known || wait > REPORT_ABOVE;
        let new = Waiting {
            uid: uid.to_owned(),
            due: now + wait,
            reported,
        };

        match position.and_then(|position| state.waiting.get_mut(position)) {
            Some(position) => *position = new,
            None => state.waiting.insert(ahead, new),
        }

        let report = reported && !known;
        Slot::Later { wait, ahead, report }
    }

    pub fn has(&self, uid: &str) -> bool {
        self.state().waiting.iter().any(|position| position.uid == uid)
    }

    pub fn done(&self, uid: &str) {
        let mut state = self.state();
        state.waiting.retain(|position| position.uid != uid);
        state.slots.retain(|(other, _)| other != uid);
    }
}

#[derive(Debug, Default)]
pub struct CreationQueues {
    classic: CreationQueue,
    network: CreationQueue,
}

impl CreationQueues {
    pub(crate) fn of(&self, desired: &Desired) -> &CreationQueue {
        match desired {
            Desired::Classic(_) => &self.classic,
            Desired::Network(_) => &self.network,
        }
    }

    pub(crate) fn has(&self, uid: &str) -> bool {
        self.classic.has(uid) || self.network.has(uid)
    }

    pub(crate) fn done(&self, uid: &str) {
        self.classic.done(uid);
        self.network.done(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// AWS's time between two creations.
    const EACH: Duration = Duration::from_secs(5);

    /// A budget of so many calls now, and then one in five seconds.
    fn budget(now: u32) -> impl Fn(u32) -> Duration {
        move |before| EACH.saturating_mul((before + 1).saturating_sub(now))
    }

    fn wait(slot: Slot) -> u64 {
        match slot {
            Slot::Now => 0,
            Slot::Later { wait, .. } => wait.as_secs(),
        }
    }

    #[test]
    fn slots_are_given_in_order_with_the_expected_wait() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        assert_eq!(wait(line.request("a", budget(0), now)), 5);
        assert_eq!(wait(line.request("b", budget(0), now)), 10);
        assert_eq!(wait(line.request("c", budget(0), now)), 15);
        let later = now + EACH;
        assert_ne!(line.request("c", budget(1), later), Slot::Now, "a and b come before");
        assert_eq!(line.request("a", budget(1), later), Slot::Now);
        line.done("a");
        assert_eq!(wait(line.request("b", budget(0), later)), 5);
        assert_eq!(line.request("b", budget(1), later + EACH), Slot::Now);
    }

    #[test]
    fn the_budget_limits_slots_and_a_request_can_be_repeated() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        for uid in ["a", "b", "c"] {
            assert_eq!(line.request(uid, budget(3), now), Slot::Now);
        }
        assert_eq!(wait(line.request("d", budget(3), now)), 5);
        assert_eq!(wait(line.request("e", budget(3), now)), 10);
        for uid in ["c", "b", "a"] {
            assert_eq!(line.request(uid, budget(3), now), Slot::Now, "it is still its turn");
        }
        line.done("a");
        assert_eq!(
            wait(line.request("d", budget(2), now)),
            5,
            "the call counts in the budget from now on"
        );
    }

    #[test]
    fn a_service_that_cannot_use_its_slot_stays_first() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        assert_eq!(line.request("a", budget(1), now), Slot::Now);
        assert_eq!(wait(line.request("b", budget(1), now)), 5);
        assert_eq!(
            wait(line.request("a", budget(0), now)),
            5,
            "someone else has used the budget"
        );
        assert_eq!(wait(line.request("b", budget(0), now)), 10);
    }

    #[test]
    fn a_long_wait_is_reported_once_and_a_short_one_is_not() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        let tells = |slot| matches!(slot, Slot::Later { report: true, .. });
        assert!(!tells(line.request("a", |_| 4 * SECOND, now)));
        assert!(tells(line.request("a", |_| 6 * SECOND, now)));
        assert!(!tells(line.request("a", |_| 9 * SECOND, now)));
        assert!(line.has("a") && !line.has("b"));
        line.done("a");
        assert!(!line.has("a"));
    }

    #[test]
    fn a_service_that_does_not_return_does_not_block_the_queue() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        assert_eq!(line.request("stuck", budget(1), now), Slot::Now);
        assert_eq!(wait(line.request("gone", budget(1), now)), 5);
        assert_eq!(wait(line.request("b", budget(1), now)), 10);
        let expired = now + EACH + EXPIRY;
        assert_eq!(line.request("b", budget(1), expired), Slot::Now);
    }
}
