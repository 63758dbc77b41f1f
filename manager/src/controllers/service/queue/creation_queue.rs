//! The line of Services that wait to have a load balancer made.
//!
//! AWS lets an account make one load balancer in five seconds, once a small reserve is used up. Nobody waits for that in
//! a worker, since others wait for the same workers: a Service stands in line, is told how long it will probably take,
//! and comes again when its turn is near. Who came first goes first; several go at once while the reserve lasts. A turn
//! ends when the call is sent ([`CreationQueue::done`]): from then on AWS's budget counts it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::spec::desired::Desired;

/// A call that has to wait no longer than this is sent at once.
const SEND_BELOW: Duration = Duration::from_millis(500);

/// Who has to wait asks again after this time at the earliest.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Who has to wait longer than this is told.
const REPORT_ABOVE: Duration = Duration::from_secs(5);

/// Who does not come at his time loses his place after so long: the Service is gone, or needs no load balancer any more.
const EXPIRY: Duration = Duration::from_secs(60);

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The one's that asks, until [`CreationQueue::done`].
    Now,
    /// Not yet his.
    Later {
        /// How long it will probably take.
        wait: Duration,
        /// So many come before.
        ahead: usize,
        /// Whether that is long, and was not told yet.
        report: bool,
    },
}

/// The line for one of AWS's two kinds of load balancers, which have a limit each.
#[derive(Debug, Default)]
pub struct CreationQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Whose turn it is, and since when.
    slots: Vec<(String, Instant)>,
}

#[derive(Debug)]
struct Waiting {
    uid: String,
    /// When it will come again.
    due: Instant,
    reported: bool,
}

impl State {
    /// Those who do not come, or never end their turn, hold up nobody.
    fn drop_expired(&mut self, uid: &str, now: Instant) {
        let expired = |since: Instant| now.saturating_duration_since(since) >= EXPIRY;
        self.waiting
            .retain(|position| position.uid == uid || !expired(position.due));
        self.slots.retain(|(_, since)| !expired(*since));
    }
}

impl CreationQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a turn. `wait` tells how long a call would wait that is sent now and lets so many others go first.
    pub fn request(&self, uid: &str, wait: impl Fn(u32) -> Duration, now: Instant) -> Slot {
        let wait = |before: usize| wait(u32::try_from(before).unwrap_or(u32::MAX));
        let mut state = self.state();
        state.drop_expired(uid, now);
        let slot = state.slots.iter().position(|(other, _)| other == uid);
        let position = state.waiting.iter().position(|position| position.uid == uid);
        // Whose turn it was and who may not go after all comes first again.
        let ahead = slot.map_or_else(|| position.unwrap_or(state.waiting.len()), |_| 0);
        let others = state.slots.len() - usize::from(slot.is_some());
        let wait = match slot {
            Some(_) => wait(0),
            None => wait(others + ahead),
        };
        if wait <= SEND_BELOW {
            state.waiting.retain(|position| position.uid != uid);
            if slot.is_none() {
                state.slots.push((uid.to_owned(), now));
            }
            return Slot::Now;
        }
        state.slots.retain(|(other, _)| other != uid);
        let wait = wait.max(SHORTEST_WAIT);
        let known = position
            .and_then(|position| state.waiting.get(position))
            .is_some_and(|position| position.reported);
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

    /// Whether a Service stands in line.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.state().waiting.iter().any(|position| position.uid == uid)
    }

    /// Ends a turn, however it ended, and gives up a place.
    pub fn done(&self, uid: &str) {
        let mut state = self.state();
        state.waiting.retain(|position| position.uid != uid);
        state.slots.retain(|(other, _)| other != uid);
    }
}

/// A line for each of AWS's limits.
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

    /// Whether a Service stands in one of them.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.classic.has(uid) || self.network.has(uid)
    }

    /// Ends the turn and the waiting of a Service.
    pub(crate) fn done(&self, uid: &str) {
        self.classic.done(uid);
        self.network.done(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// AWS's time between two.
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
    fn who_came_first_goes_first_and_everyone_knows_his_time() {
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
    fn as_many_go_at_once_as_the_budget_has_and_each_may_ask_again() {
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
    fn who_may_not_go_after_all_comes_first_again() {
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
    fn a_long_wait_is_told_once_and_a_short_one_is_not() {
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
    fn who_does_not_come_or_never_ends_does_not_block_the_line() {
        let (line, now) = (CreationQueue::default(), Instant::now());
        assert_eq!(line.request("stuck", budget(1), now), Slot::Now);
        assert_eq!(wait(line.request("gone", budget(1), now)), 5);
        assert_eq!(wait(line.request("b", budget(1), now)), 10);
        let expired = now + EACH + EXPIRY;
        assert_eq!(line.request("b", budget(1), expired), Slot::Now);
    }
}
