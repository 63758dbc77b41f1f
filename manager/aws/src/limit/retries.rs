//! The retries of a throttled call. No IO: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum retries of one call. The backoffs before them are 1, 2, 4, 8 and 10 s, each shortened by up to a half.
const MOST: u32 = 5;

/// A call is not retried when this time has passed since AWS throttled it first.
const PATIENCE: Duration = Duration::from_secs(60);

/// The retries of one call.
#[derive(Debug, Default)]
pub(super) struct Retries {
    made: u32,
    first: Option<Instant>,
}

impl Retries {
    /// AWS throttled the call. Returns whether it is to be sent again.
    pub(super) fn throttled(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        let again = self.made < MOST && now.saturating_duration_since(first) < PATIENCE;
        self.made += u32::from(again);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_five_retries_within_a_minute() {
        let now = Instant::now();
        let mut retries = Retries::default();
        assert_eq!((0..9).filter(|_| retries.throttled(now)).count(), 5);

        let mut slow = Retries::default();
        assert!(slow.throttled(now));
        assert!(slow.throttled(now + Duration::from_secs(59)));
        assert!(!slow.throttled(now + Duration::from_secs(60)));
    }
}
