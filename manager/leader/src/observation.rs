//! A lease as one process observes it: the last record, and when it changed. Pure.

use std::time::Duration;

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
    /// Updates the observation if the record differs. `written`: the record is newer than the last one, not an old state
    /// from a server that lags behind.
    pub fn update(current: &mut Option<Self>, record: Record, written: bool, now: Instant) {
        match current {
            Some(seen) if seen.record == record => {}
            _ => {
                let live = current.is_some() && written;
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

    /// Whether the lease is free, or this process saw its record unchanged for at least `full`.
    #[must_use]
    pub fn was_idle_for(&self, full: Duration, now: Instant) -> bool {
        self.record.is_free() || now.saturating_duration_since(self.since) >= full
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test(start_paused = true)]
    async fn a_free_lease_is_idle_at_once_and_a_held_one_after_the_full_time() {
        let mut seen = None;
        Observation::update(&mut seen, record("kcm", 1), true, Instant::now());
        let full = Duration::from_secs(15);
        assert!(!seen.clone().unwrap().was_idle_for(full, Instant::now()));
        tokio::time::advance(full).await;
        assert!(seen.unwrap().was_idle_for(full, Instant::now()));
        let mut free = None;
        Observation::update(&mut free, record("", 1), true, Instant::now());
        assert!(free.unwrap().was_idle_for(full, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_was_merely_found_shows_no_life_until_it_is_renewed() {
        let mut seen = None;
        Observation::update(&mut seen, record("kcm", 1), true, Instant::now());
        assert!(!seen.clone().unwrap().live);
        Observation::update(&mut seen, record("kcm", 0), false, Instant::now());
        assert!(!seen.clone().unwrap().live, "an older state is no renewal");
        Observation::update(&mut seen, record("kcm", 2), true, Instant::now());
        assert!(seen.unwrap().live);
    }
}
