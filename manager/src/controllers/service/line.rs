//! The line of Services that wait to have a load balancer made.
//!
//! AWS lets an account make one load balancer in five seconds, once a small reserve is used up. Nobody waits for that in
//! a worker, since others wait for the same workers: a Service stands in line, is told how long it will probably take,
//! and comes again when its turn is near. Who came first goes first, and one goes at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A call that has to wait no longer than this is sent at once.
const PATIENCE: Duration = Duration::from_millis(500);

/// AWS's own time between two creations, the least that is expected.
const LEAST_INTERVAL: Duration = Duration::from_secs(5);

/// Who waits while another one's load balancer is being made, asks again after this time.
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
    /// Whose load balancer is being made, and since when.
    turn: Option<(String, Instant)>,
    /// The longest time that one call had to wait so far: about what lies between two of them.
    interval: Duration,
}

#[derive(Debug)]
struct Place {
    uid: String,
    /// When it will come again.
    due: Instant,
    told: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a turn; a call that is sent now would have to wait for `wait`.
    pub fn ask(&self, uid: &str, wait: Duration, now: Instant) -> Turn {
        let mut state = self.state();
        let late = |since: Instant| now.saturating_duration_since(since) >= LATE;
        state.waiting.retain(|place| place.uid == uid || !late(place.due));
        if state.turn.as_ref().is_some_and(|(_, since)| late(*since)) {
            state.turn = None;
        }
        let busy = state.turn.as_ref().is_some_and(|(other, _)| other != uid);
        let place = state.waiting.iter().position(|place| place.uid == uid);
        let ahead = place.unwrap_or(state.waiting.len());
        if ahead == 0 && !busy && wait <= PATIENCE {
            state.waiting.retain(|place| place.uid != uid);
            state.turn = Some((uid.to_owned(), now));
            return Turn::Now;
        }
        state.interval = state.interval.max(wait).max(LEAST_INTERVAL);
        let before = state.interval.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        let wait = wait.max(SOON).saturating_add(before);
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
            None => state.waiting.push_back(new),
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
        if state.turn.as_ref().is_some_and(|(other, _)| other == uid) {
            state.turn = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wait(turn: Turn) -> u64 {
        match turn {
            Turn::Now => 0,
            Turn::Later { wait, .. } => wait.as_secs(),
        }
    }

    #[test]
    fn who_came_first_goes_first_and_everyone_knows_his_time() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(line.ask("a", Duration::ZERO, now), Turn::Now);
        assert_eq!(line.ask("a", Duration::ZERO, now), Turn::Now, "it is still its turn");
        line.done("a");
        assert_eq!(wait(line.ask("b", 4 * SECOND, now)), 4);
        assert_eq!(wait(line.ask("c", 4 * SECOND, now)), 9);
        assert_eq!(wait(line.ask("d", 4 * SECOND, now)), 14);
        let later = now + 4 * SECOND;
        assert_ne!(line.ask("d", Duration::ZERO, later), Turn::Now, "b and c come before");
        assert_eq!(line.ask("b", Duration::ZERO, later), Turn::Now);
        line.done("b");
        assert_eq!(line.ask("c", Duration::ZERO, later), Turn::Now);
    }

    #[test]
    fn one_goes_at_a_time() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(line.ask("a", Duration::ZERO, now), Turn::Now);
        assert_eq!(wait(line.ask("b", Duration::ZERO, now)), 1);
        line.done("a");
        assert_eq!(line.ask("b", Duration::ZERO, now), Turn::Now);
        assert_eq!(
            line.ask("c", Duration::ZERO, now + LATE),
            Turn::Now,
            "b never came to an end"
        );
    }

    #[test]
    fn a_long_wait_is_told_once_and_a_short_one_is_not() {
        let (line, now) = (Line::default(), Instant::now());
        let tells = |turn| matches!(turn, Turn::Later { tell: true, .. });
        assert!(!tells(line.ask("a", 4 * SECOND, now)));
        assert!(tells(line.ask("a", 6 * SECOND, now)));
        assert!(!tells(line.ask("a", 9 * SECOND, now)));
        assert!(line.has("a") && !line.has("b"));
        line.done("a");
        assert!(!line.has("a"));
    }

    #[test]
    fn who_does_not_come_does_not_block_the_line() {
        let (line, now) = (Line::default(), Instant::now());
        line.ask("gone", 4 * SECOND, now);
        line.ask("b", 4 * SECOND, now);
        let late = now + 4 * SECOND + LATE;
        assert_eq!(line.ask("b", Duration::ZERO, late), Turn::Now);
    }

    #[test]
    fn the_longest_wait_tells_what_lies_between_two() {
        let (line, now) = (Line::default(), Instant::now());
        assert_eq!(wait(line.ask("a", 20 * SECOND, now)), 20);
        assert_eq!(wait(line.ask("b", 20 * SECOND, now)), 40);
    }
}
