//! How old the answers may be that one observation uses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::sequence::Stamp;

/// How long an answer that was given to one Service serves others.
pub const MAX_AGE: Duration = Duration::from_secs(60);

/// The age limits of one observation. Records whether it used an answer from before its start.
#[derive(Debug)]
pub struct Freshness {
    began: Stamp,
    cached: bool,
    used_older_shared: AtomicBool,
    used_older_balancer: AtomicBool,
}

impl Freshness {
    /// Starts an observation. A `cached` one accepts answers of up to [`MAX_AGE`] before its start.
    pub(super) fn starting_now(cached: bool) -> Self {
        Self {
            began: Stamp::now(),
            cached,
            used_older_shared: AtomicBool::new(false),
            used_older_balancer: AtomicBool::new(false),
        }
    }

    /// Whether it accepts answers from before its start.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// Records the use of a description of the load balancer from before the start.
    pub fn note_older_balancer(&self) {
        self.used_older_balancer.store(true, Ordering::Relaxed);
    }

    /// Whether a description of the load balancer is from before the start.
    pub fn used_older_balancer(&self) -> bool {
        self.used_older_balancer.load(Ordering::Relaxed)
    }

    /// Whether any answer is from before the start.
    pub fn used_older(&self) -> bool {
        self.used_older_balancer() || self.used_older_shared.load(Ordering::Relaxed)
    }

    /// Whether an answer of that moment serves as what is shared.
    pub(super) fn takes_shared(&self, answered: Stamp) -> bool {
        self.takes(answered, MAX_AGE, &self.used_older_shared)
    }

    /// Whether a prefetched description of that moment serves as the load balancer's.
    pub(super) fn takes_prefetched(&self, described: Stamp, max_age: Duration) -> bool {
        self.takes_shared(described) || self.takes(described, max_age, &self.used_older_balancer)
    }

    fn takes(&self, answered: Stamp, max_age: Duration, older: &AtomicBool) -> bool {
        if answered.is_after(self.began) {
            return true;
        }

        let serves = self.cached && answered.age(self.began) < max_age;
        if serves {
            older.store(true, Ordering::Relaxed);
        }

        serves
    }
}
