//! The rules by which controllers believe a loss: it counts only if it lasts, and a mass loss counts later or not at all.
//! An incomplete list, a restored backup or a wrong permission looks like the loss of many objects at once. Pure: times
//! and thresholds are arguments.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// How many losses at once are believed. One more is a mass loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossLimit {
    /// So many are believed in a cluster of any size.
    pub few: usize,
    /// So many percent of all are believed.
    pub percent: usize,
}

impl LossLimit {
    pub const fn of(self, all: usize) -> usize {
        let share = all.saturating_mul(self.percent) / 100;
        if share > self.few { share } else { self.few }
    }

    /// Whether it is a mass loss: more than the limit, not the limit itself.
    pub const fn is_exceeded(self, lost: usize, all: usize) -> bool {
        lost > self.of(all)
    }
}

/// The observations of a key, without one in between that did not find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub since: Instant,
    pub times: u32,
}

impl Seen {
    pub fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// Since when, and how often, each key has been observed.
#[derive(Debug, Clone)]
pub struct FirstSeen<K> {
    by_key: HashMap<K, Seen>,
}

impl<K> Default for FirstSeen<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new() }
    }
}

impl<K: Eq + Hash> FirstSeen<K> {
    pub fn note(&mut self, key: K, now: Instant) {
        let first = Seen { since: now, times: 0 };
        let seen = self.by_key.entry(key).or_insert(first);
        seen.times = seen.times.saturating_add(1);
    }

    /// Records an observation that has found these keys, and no others.
    pub fn note_all(&mut self, keys: impl IntoIterator<Item = K>, now: Instant) {
        let mut before = std::mem::take(&mut self.by_key);
        for key in keys {
            if let Some((key, seen)) = before.remove_entry(&key) {
                self.by_key.insert(key, seen);
            }
            self.note(key, now);
        }
    }

    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Seen>
    where
        K: Borrow<Q>,
    {
        self.by_key.get(key).copied()
    }

    /// The keys that were first observed at least `age` ago.
    pub fn older_than(&self, age: Duration, now: Instant) -> impl Iterator<Item = &K> {
        let old = self.by_key.iter().filter(move |(_, seen)| seen.age(now) >= age);
        old.map(|(key, _)| key)
    }

    pub fn retain(&mut self, keep: impl Fn(&K, Seen) -> bool) {
        self.by_key.retain(|key, seen| keep(key, *seen));
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.by_key.remove(key);
    }

    /// Also gives up the memory: a mass loss may have had thousands of keys.
    pub fn clear(&mut self) {
        self.by_key = HashMap::new();
    }
}

#[cfg(test)]
impl<K> FirstSeen<K> {
    /// The bytes of its table, without the heap of its keys.
    pub fn bytes(&self) -> usize {
        self.by_key.capacity() * size_of::<(K, Seen)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_mass_loss_is_more_than_the_limit() {
        let usual = LossLimit { few: 3, percent: 20 };
        for (lost, all, exceeded) in [
            (3, 3, false),
            (4, 4, true),
            (4, 19, true),
            (4, 20, false),
            (5, 20, true),
            (200, 1000, false),
            (201, 1000, true),
        ] {
            assert_eq!(usual.is_exceeded(lost, all), exceeded, "{lost} of {all}");
        }

        let share_only = LossLimit { few: 0, percent: 20 };
        assert!(share_only.is_exceeded(1, 4));
        assert!(!share_only.is_exceeded(1, 5));
        assert!(!share_only.is_exceeded(0, 0), "nothing is lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_as_old_as_its_first_observation_without_a_gap() {
        let (mut seen, start) = (FirstSeen::default(), Instant::now());
        seen.note_all(["a", "b"], start);
        seen.note_all(["a"], start + SECOND);
        seen.note_all(["a", "b"], start + 2 * SECOND);

        let a = seen.get("a").unwrap();
        assert_eq!((a.since, a.times, a.age(start + 2 * SECOND)), (start, 3, 2 * SECOND));
        let b = seen.get("b").unwrap();
        assert_eq!((b.since, b.times), (start + 2 * SECOND, 1), "it begins again");
        let old = |age| seen.older_than(age, start + 2 * SECOND).copied().collect::<Vec<_>>();
        assert_eq!(old(2 * SECOND), ["a"]);
        assert_eq!(old(3 * SECOND), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn single_keys_are_noted_and_removed() {
        let (mut seen, start) = (FirstSeen::default(), Instant::now());
        seen.note("a".to_owned(), start);
        seen.note("b".to_owned(), start + SECOND);
        seen.note("a".to_owned(), start + SECOND);
        assert_eq!(seen.get("a").map(|seen| seen.times), Some(2));
        seen.retain(|key, seen| key != "a" || seen.times > 2);
        assert_eq!(seen.get("a"), None);
        seen.remove("b");
        assert_eq!(seen.get("b"), None);
        seen.note("c".to_owned(), start);
        seen.clear();
        assert_eq!(seen.get("c"), None);
    }
}
