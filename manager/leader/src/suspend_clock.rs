//! How long this machine was suspended. The clock of [`std::time::Instant`] stands still meanwhile, and a lease does not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The total time in suspension. A value that can be replaced in tests.
#[derive(Clone)]
pub struct SuspendClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SuspendClock {
    #[cfg(test)]
    pub fn of(total: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(total))
    }

    pub fn total(&self) -> Duration {
        (self.0)()
    }
}

impl Default for SuspendClock {
    fn default() -> Self {
        Self(Arc::new(total))
    }
}

impl fmt::Debug for SuspendClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SuspendClock").field(&self.total()).finish()
    }
}

/// The time in suspension since the start of the machine: only `CLOCK_BOOTTIME` runs on meanwhile
/// (<https://man7.org/linux/man-pages/man2/clock_gettime.2.html>). It is read second, so that a suspension between both
/// reads counts.
pub fn total() -> Duration {
    let running = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(running)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither clock is ever negative, and nanoseconds are below 10^9.
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_machine_is_not_suspended() {
        let before = total();
        std::thread::sleep(Duration::from_millis(50));
        let during = (0..1_000).map(|_| total()).min();
        assert!(during.is_some_and(|during| during.abs_diff(before) < Duration::from_millis(40)));
    }
}
