//! Exponential backoff, by key. Pure: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use outrigger_shared::backoff::doubled;
use tokio::time::Instant;

/// Failed keys to retry. Each failure doubles the backoff, up to the longest.
#[derive(Debug)]
pub struct Backoff<K> {
    first: Duration,
    longest: Duration,
    entries: HashMap<K, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    failures: u32,
    due: Instant,
}

impl<K: Clone + Eq + Hash> Backoff<K> {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            entries: HashMap::new(),
        }
    }

    /// Records a failure and returns the number of failures in a row.
    pub fn failed(&mut self, key: &K, now: Instant) -> u32 {
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert(Entry { failures: 0, due: now });
        let backoff = doubled(self.first, self.longest, entry.failures);
        entry.failures = entry.failures.saturating_add(1);
        entry.due = now + backoff;

        entry.failures
    }

    /// Forgets a key after a success, or when it is gone.
    pub fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub fn may_try(&self, key: &K, now: Instant) -> bool {
        self.entries.get(key).is_none_or(|entry| entry.due <= now)
    }

    /// The keys that are due. Their failures stay recorded.
    pub fn due(&self, now: Instant) -> Vec<K> {
        let due = self.entries.iter().filter(|(_, entry)| entry.due <= now);
        due.map(|(key, _)| key.clone()).collect()
    }

    /// When the next key after `now` is due.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let later = self.entries.values().map(|entry| entry.due).filter(|due| *due > now);
        later.min()
    }
}

/// Sleeps until then; for ever without a time.
pub async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let now = Instant::now();
        for (failures, pause) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
            assert_eq!(backoff.failed(&"a", now), failures);
            assert_eq!(backoff.next_due(now), Some(now + Duration::from_secs(pause)));
        }
        assert!(!backoff.may_try(&"a", now) && backoff.may_try(&"b", now));
        assert_eq!(backoff.due(now + Duration::from_secs(5)), ["a"]);
        backoff.forget(&"a");
        assert_eq!(backoff.failed(&"a", now), 1);
    }
}
