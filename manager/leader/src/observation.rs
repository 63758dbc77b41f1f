//! A lease as one process observes it: the last record, and when it changed. Pure.

use outrigger_evidence::record::Record;
use tokio::time::Instant;

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
    ///
    /// Only an elector's record counts from now on. An edit by hand neither moves the expiry nor shows that the holder it
    /// names is alive: the process that wrote the last record still acts under it.
    pub fn update(current: &mut Option<Self>, record: Record, live: bool, now: Instant) {
        match current {
            Some(seen) if seen.record == record => {}
            Some(seen) if !record.is_written_after(&seen.record) => {
                seen.live &= record.holder == seen.record.holder;
                seen.record = Record {
                    duration: seen.record.duration,
                    renew_time: seen.record.renew_time,
                    ..record
                };
            }
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
    pub fn expires(&self) -> Instant {
        self.since + self.record.duration
    }

    /// Whether the lease has a holder that renewed it within its duration.
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

    #[tokio::test(start_paused = true)]
    async fn an_edit_by_hand_moves_no_expiry_and_shows_no_living_holder() {
        let renewed = record("kcm", 2);
        let edits = [
            Record {
                duration: Duration::from_secs(1),
                ..renewed.clone()
            },
            Record {
                duration: Duration::ZERO,
                renew_time: None,
                ..renewed.clone()
            },
            Record {
                holder: "us".into(),
                duration: Duration::from_secs(60),
                ..renewed.clone()
            },
        ];
        for edit in edits {
            let (mut seen, start) = (None, Instant::now());
            Observation::update(&mut seen, renewed.clone(), true, start);
            tokio::time::advance(Duration::from_secs(3)).await;
            Observation::update(&mut seen, edit.clone(), true, Instant::now());
            // A watch that starts anew shows the same object again.
            Observation::update(&mut seen, edit.clone(), true, Instant::now());
            let changed = seen.clone().unwrap();
            assert_eq!(changed.record.renew_time, renewed.renew_time);
            assert_eq!(changed.expires(), start + Duration::from_secs(15), "{edit:?}");
            assert_eq!(changed.live, edit.holder == "kcm");

            tokio::time::advance(Duration::from_secs(1)).await;
            Observation::update(&mut seen, record("kcm", 4), true, Instant::now());
            let renewed = seen.unwrap();
            assert_eq!(renewed.expires(), Instant::now() + Duration::from_secs(15));
            assert!(renewed.live);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_does_not_make_a_found_record_live() {
        let mut seen = None;
        Observation::update(&mut seen, record("dead", 1), false, Instant::now());
        let mut edit = record("dead", 1);
        edit.transitions = 7;
        Observation::update(&mut seen, edit, true, Instant::now());
        assert!(!seen.unwrap().live);
    }
}
