//! A lease as one process observes it: the last record, and when it changed. Pure.

use tokio::time::Instant;

use crate::record::Record;

/// The last observed record and the local time of its first observation.
///
/// A record is valid from the local observation on, for the duration that it contains. The times in the object come from
/// another machine's clock and are never compared with the local clock.
#[derive(Debug, Clone)]
pub struct Observation {
    pub record: Record,
    /// When this process first observed that record.
    pub since: Instant,
    /// Whether this process observed the write of the record. A record found at the start may be years old, so it does not
    /// show that its holder is alive.
    pub live: bool,
}

impl Observation {
    /// Updates the observation if the record differs. `live`: this process observed the state before it was written, and it
    /// is newer than that state, not an old one from a server that lags behind.
    pub fn update(current: &mut Option<Self>, record: Record, live: bool, now: Instant) {
        match current {
            Some(seen) if seen.record == record => {}
            _ => {
                *current = Some(Self {
                    record,
                    since: now,
                    live,
                });
            }
        }
    }

    /// When the lease expires, unless the record changes before.
    #[must_use]
    pub fn expires(&self) -> Instant {
        self.since + self.record.duration
    }

    /// Whether the lease has a holder that renewed it within its duration.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        !self.record.is_free() && now < self.expires()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(holder: &str, renewed: i64) -> Record {
        let at = jiff::Timestamp::from_second(renewed).unwrap();
        Record::created_by(holder, Duration::from_secs(15), at)
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_renew_time_does_not_make_a_record_old() {
        let mut seen = None;
        Observation::update(&mut seen, record("kcm", 0), true, Instant::now());
        let seen = seen.unwrap();
        assert!(seen.is_held(Instant::now()));
        tokio::time::advance(Duration::from_millis(14_999)).await;
        assert!(seen.is_held(Instant::now()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!seen.is_held(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_changed_record_starts_the_time_again() {
        let mut seen = None;
        Observation::update(&mut seen, record("kcm", 1), true, Instant::now());
        tokio::time::advance(Duration::from_secs(10)).await;
        Observation::update(&mut seen, record("kcm", 1), true, Instant::now());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!seen.clone().unwrap().is_held(Instant::now()));
        Observation::update(&mut seen, record("kcm", 2), true, Instant::now());
        assert!(seen.unwrap().is_held(Instant::now()));
    }
}
