//! A token bucket: a burst, then a rate. Pure: the time is an argument. A bucket is used by `take` or by `reserve`, not
//! by both.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct TokenBucket {
    /// Tokens per second, above zero.
    rate: f64,
    burst: f64,
    /// Below zero after reservations of tokens to come.
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    pub fn full(rate: f64, burst: f64, now: Instant) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        self.at = now;
    }

    pub fn available(&mut self, now: Instant) -> usize {
        self.refill(now);

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float outside of the range of the integer becomes its nearest bound; a part of a token is none"
        )]
        let whole = (self.tokens + 1e-9) as usize;

        whole
    }

    /// Takes tokens that are [available](Self::available).
    pub fn take(&mut self, count: u32) {
        self.tokens = (self.tokens - f64::from(count)).max(0.0);
    }

    pub fn wait(&self) -> Duration {
        let missing = (1.0 - self.tokens).max(0.0) / self.rate;
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }

    /// Takes a token, which may be one to come, and returns how long until it is there. So callers are served in order.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        Duration::try_from_secs_f64(-self.tokens / self.rate).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_comes_first_then_the_rate() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(2.0, 3.0, now);
        assert_eq!(bucket.available(now), 3);
        bucket.take(3);
        assert_eq!(bucket.available(now), 0);
        assert_eq!(bucket.wait(), Duration::from_millis(500));
        assert_eq!(bucket.available(now + Duration::from_secs(1)), 2);
        assert_eq!(bucket.available(now + Duration::from_secs(60)), 3);
    }

    #[test]
    fn reservations_are_served_in_order() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(2.0, 1.0, now);
        let waits = [0, 500, 1000].map(Duration::from_millis);
        assert_eq!(waits.map(|_| bucket.reserve(now)), waits);
    }
}
