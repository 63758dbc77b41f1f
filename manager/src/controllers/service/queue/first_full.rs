//! When the first full observations after a start are due.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time between two of them. Each is one read, and one for each target group with attributes; AWS allows 10 reads a second.
pub const EVERY: Duration = Duration::from_secs(1);

/// One time after the other, so that the Nodes of all load balancers are right long before all attributes are read.
#[derive(Debug, Default)]
pub struct FirstFull(Mutex<Option<Instant>>);

impl FirstFull {
    /// The next time, not before `now`.
    pub fn next(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = last.map_or(now, |last| last.max(now)) + EVERY;
        *last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_follow_one_another_and_begin_soon() {
        let (first_full, now) = (FirstFull::default(), Instant::now());
        let times: Vec<Instant> = (0..3).map(|_| first_full.next(now)).collect();
        assert_eq!(times, [now + EVERY, now + 2 * EVERY, now + 3 * EVERY]);
        let later = now + Duration::from_secs(60);
        assert_eq!(first_full.next(later), later + EVERY);
    }
}
