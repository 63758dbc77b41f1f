//! Moments of this process, in an order that a coarse or standing clock cannot blur.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

static LAST: AtomicU64 = AtomicU64::new(0);

/// When a call was sent, or something was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    number: u64,
    at: Instant,
}

impl Stamp {
    /// Later than all before.
    #[must_use]
    pub fn now() -> Self {
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            at: Instant::now(),
        }
    }

    /// Whether it comes after the other.
    #[must_use]
    pub fn is_after(&self, other: Self) -> bool {
        self.number > other.number
    }

    /// How long before the other it was; nothing if it was not.
    #[must_use]
    pub fn age(&self, other: Self) -> Duration {
        other.at.saturating_duration_since(self.at)
    }
}
