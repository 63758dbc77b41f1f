//! `--tagging-controller-rate-limit` and `-burst-limit`: how fast Nodes are taken up. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of permissions that refills.
#[derive(Debug)]
pub struct Pace {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Pace {
    /// A full bucket. `None` where there is no limit: both numbers must be above zero.
    #[must_use]
    pub fn new(rate: f64, burst: u32, now: Instant) -> Option<Self> {
        (rate > 0.0 && burst > 0).then(|| Self {
            rate,
            burst: burst.into(),
            tokens: burst.into(),
            at: now,
        })
    }

    /// How many may be taken up now.
    pub fn available(&mut self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        self.at = now;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a 32-bit number; a part of one is none"
        )]
        let whole = (self.tokens + 1e-9) as usize;
        whole
    }

    /// Takes up so many.
    pub fn take(&mut self, count: u32) {
        self.tokens = (self.tokens - f64::from(count)).max(0.0);
    }

    /// How long until the next one.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let missing = (1.0 - self.tokens).max(0.0) / self.rate;
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_comes_first_then_the_rate() {
        let now = Instant::now();
        let mut pace = Pace::new(2.0, 3, now).unwrap();
        assert_eq!(pace.available(now), 3);
        pace.take(3);
        assert_eq!(pace.available(now), 0);
        assert_eq!(pace.wait(), Duration::from_millis(500));
        assert_eq!(pace.available(now + Duration::from_secs(1)), 2);
        assert_eq!(pace.available(now + Duration::from_secs(60)), 3);
    }

    #[test]
    fn without_both_numbers_there_is_no_limit() {
        let now = Instant::now();
        assert!(Pace::new(0.0, 3, now).is_none());
        assert!(Pace::new(2.0, 0, now).is_none());
    }
}
