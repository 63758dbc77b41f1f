//! Points in time of this process, in a strict order even if the clock is coarse or stands still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

static LAST: AtomicU64 = AtomicU64::new(0);

/// The time of a call or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    number: u64,
    at: Instant,
}

impl Stamp {
    pub fn now() -> Self {
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            at: Instant::now(),
        }
    }

    pub fn is_after(&self, other: Self) -> bool {
        self.number > other.number
    }

    /// Time from this one to the other; zero if this one is later.
    pub fn age(&self, other: Self) -> Duration {
        other.at.saturating_duration_since(self.at)
    }
}
