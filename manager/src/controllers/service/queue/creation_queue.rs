//! The line of Services that wait to have a load balancer made.
//!
//! AWS lets an account make one load balancer in five seconds, once a small reserve is used up. Nobody waits for that in
//! a worker, since others wait for the same workers: a Service stands in line, is told how long it will probably take,
//! and comes again when its turn is near. Who came first goes first; several go at once while the reserve lasts. A turn
//! ends when the call is sent ([`Line::done`]): from then on AWS's budget counts it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::spec::desired::Desired;

/// A call that has to wait no longer than this is sent at once.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who has to wait asks again after this time at the earliest.
const SOON: Duration = Duration::from_secs(1);

/// Who has to wait longer than this is told.
const WORTH_TELLING: Duration = Duration::from_secs(5);

/// Who does not come at his time loses his place after so long: the Service is gone, or needs no load balancer any more.
const LATE: Duration = Duration::from_secs(60);

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The one's that asks, until [`Line::done`].
    Now,
    /// Not yet his.
    Later {
        /// How long it will probably take.
        wait: Duration,
        /// So many come before.
        ahead: usize,
        /// Whether that is long, and was not told yet.
        tell: bool,
    },
}

/// The line for one of AWS's two kinds of load balancers, which have a limit each.
#[derive(Debug, Default)]
pub struct Line {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Place>,
    /// Whose turn it is, and since when.
    turns: Vec<(String, Instant)>,
}

#[derive(Debug)]
struct Place {
    uid: String,
    /// When it will come again.
    due: Instant,
    told: bool,
}

impl State {
    /// Those who do not come, or never end their turn, hold up nobody.
    fn forget_the_late(&mut self, uid: &str, now: Instant) {
        let late = |since: Instant| now.saturating_duration_since(since) >= LATE;
        self.waiting.retain(|place| place.uid == uid || !late(place.due));
        self.turns.retain(|(_, since)| !late(*since));
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a turn. `wait` tells how long a call would wait that is sent now and lets so many others go first.
    pub fn ask(&self, uid: &str, wait: impl Fn(u32) -> Duration, now: Instant) -> Turn {
        let wait = |before: usize| wait(u32::try_from(before).unwrap_or(u32::MAX));
        let mut state = self.state();
        state.forget_the_late(uid, now);
        let turn = state.turns.iter().position(|(other, _)| other == uid);
        let place = state.waiting.iter().position(|place| place.uid == uid);
        // Whose turn it was and who may not go after all comes first again.
        let ahead = turn.map_or_else(|| place.unwrap_or(state.waiting.len()), |_| 0);
        let others = state.turns.len() - usize::from(turn.is_some());
        let wait = match turn {
            Some(_) => wait(0),
            None => wait(others + ahead),
        };
        if wait <= PATIENCE {
            state.waiting.retain(|place| place.uid != uid);
            if turn.is_none() {
                state.turns.push((uid.to_owned(), now));
            }
            return Turn::Now;
        }
        state.turns.retain(|(other, _)| other != uid);
        let wait = wait.max(SOON);
        let known = place
            .and_then(|place| state.waiting.get(place))
            .is_some_and(|place| place.told);
        let told = known || wait > WORTH_TELLING;
        let new = Place {
            uid: uid.to_owned(),
            due: now + wait,
            told,
        };
        match place.and_then(|place| state.waiting.get_mut(place)) {
            Some(place) => *place = new,
            None => state.waiting.insert(ahead, new),
        }
        let tell = told && !known;
        Turn::Later { wait, ahead, tell }
    }

    /// Whether a Service stands in line.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.state().waiting.iter().any(|place| place.uid == uid)
    }

    /// Ends a turn, however it ended, and gives up a place.
    pub fn done(&self, uid: &str) {
        let mut state = self.state();
        state.waiting.retain(|place| place.uid != uid);
        state.turns.retain(|(other, _)| other != uid);
    }
}

/// A line for each of AWS's limits.
#[derive(Debug, Default)]
pub struct Lines {
    classic: Line,
    network: Line,
}

impl Lines {
    pub(crate) fn of(&self, desired: &Desired) -> &Line {
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

    fn wait(turn: Turn) -> u64 {
        match turn {
            Turn::Now => 0,
            Turn::Later { wait, .. } => wait.as_secs(),
        }
    }

    #[test]
    fn who_came_first_goes_first_and_everyone_knows_his_time() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(wait(line.ask("a", budget(0), now)), 5);
        assert_eq!(wait(line.ask("b", budget(0), now)), 10);
        assert_eq!(wait(line.ask("c", budget(0), now)), 15);
        let later = now + EACH;
        assert_ne!(line.ask("c", budget(1), later), Turn::Now, "a and b come before");
        assert_eq!(line.ask("a", budget(1), later), Turn::Now);
        line.done("a");
        assert_eq!(wait(line.ask("b", budget(0), later)), 5);
        assert_eq!(line.ask("b", budget(1), later + EACH), Turn::Now);
    }

    #[test]
    fn as_many_go_at_once_as_the_budget_has_and_each_may_ask_again() {
        let (line, now) = (Line::default(), Instant::now());
        for uid in ["a", "b", "c"] {
            assert_eq!(line.ask(uid, budget(3), now), Turn::Now);
        }
        assert_eq!(wait(line.ask("d", budget(3), now)), 5);
        assert_eq!(wait(line.ask("e", budget(3), now)), 10);
        for uid in ["c", "b", "a"] {
            assert_eq!(line.ask(uid, budget(3), now), Turn::Now, "it is still its turn");
        }
        line.done("a");
        assert_eq!(
            wait(line.ask("d", budget(2), now)),
            5,
            "the call counts in the budget from now on"
        );
    }

    #[test]
    fn who_may_not_go_after_all_comes_first_again() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(line.ask("a", budget(1), now), Turn::Now);
        assert_eq!(wait(line.ask("b", budget(1), now)), 5);
        assert_eq!(
            wait(line.ask("a", budget(0), now)),
            5,
            "someone else has used the budget"
        );
        assert_eq!(wait(line.ask("b", budget(0), now)), 10);
    }

    #[test]
    fn a_long_wait_is_told_once_and_a_short_one_is_not() {
        let (line, now) = (Line::default(), Instant::now());
        let tells = |turn| matches!(turn, Turn::Later { tell: true, .. });
        assert!(!tells(line.ask("a", |_| 4 * SECOND, now)));
        assert!(tells(line.ask("a", |_| 6 * SECOND, now)));
        assert!(!tells(line.ask("a", |_| 9 * SECOND, now)));
        assert!(line.has("a") && !line.has("b"));
        line.done("a");
        assert!(!line.has("a"));
    }

    #[test]
    fn who_does_not_come_or_never_ends_does_not_block_the_line() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(line.ask("stuck", budget(1), now), Turn::Now);
        assert_eq!(wait(line.ask("gone", budget(1), now)), 5);
        assert_eq!(wait(line.ask("b", budget(1), now)), 10);
        let late = now + EACH + LATE;
        assert_eq!(line.ask("b", budget(1), late), Turn::Now);
    }
}
