//! The queue of the service controller: keys with a class and a time. Pure: the time is an argument, and
//! the caller waits.
//!
//! - A key has one turn at a time. If it is added during its turn, it is due again at the end of the turn: each add is
//!   followed by a turn that began after it.
//! - A key that is due waits for those of better classes. It gains one class in each [`AGEING`], so it waits a bounded
//!   time.
//! - One worker is left to keys that a user waits for, if there are several workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// Why a key is in the queue, the best class first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A user has created or changed the Service.
    Asked,
    /// Nodes have left.
    Deregister,
    /// Nodes have joined.
    Register,
    Deletion,
    /// First pass after a start.
    Start,
    /// Periodic search for drift.
    Drift,
}

/// A key that is due gains one class in this time.
pub const AGEING: Duration = Duration::from_secs(30);

impl Class {
    /// The head start of [`Class::Asked`].
    fn handicap(self) -> Duration {
        let steps = match self {
            Self::Asked => 0,
            Self::Deregister => 1,
            Self::Register => 2,
            Self::Deletion => 3,
            Self::Start => 4,
            Self::Drift => 5,
        };
        AGEING * steps
    }
}

/// When a key is due, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub class: Class,
    pub at: Instant,
}

impl Due {
    /// Nothing is due before it is added: an earlier time would go before keys that have waited.
    fn not_before(self, now: Instant) -> Self {
        Self {
            at: self.at.max(now),
            ..self
        }
    }

    /// One turn serves both: it comes when the first is due, with the better class.
    fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            class: self.class.min(other.class),
            at: self.at.min(other.at),
        }
    }

    /// Keys that are due get workers in this order. Ageing is in it: a key that is due for so long that it has gained the
    /// difference of the classes goes before a new one.
    fn rank(self) -> Instant {
        self.at + self.class.handicap()
    }
}

/// A key with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    class: Class,
    /// Adds since its begin.
    again: Option<Due>,
}

#[derive(Debug)]
pub struct Queue<K> {
    workers: usize,
    waiting: BTreeMap<K, Due>,
    running: BTreeMap<K, Turn>,
    /// Waiting keys that are not due yet, by time.
    later: BTreeSet<(Instant, K)>,
    /// Waiting keys that are due, by [`Due::rank`]: those that a user waits for, and all others.
    asked: BTreeSet<(Instant, K)>,
    background: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Clone> Queue<K> {
    /// `workers`: how many turns there are at the same time, at least one.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            later: BTreeSet::new(),
            asked: BTreeSet::new(),
            background: BTreeSet::new(),
        }
    }

    /// Adds a key, which is due from `due` on. A key that waits already keeps its better class and earlier time.
    pub fn add(&mut self, key: K, due: Due, now: Instant) {
        let due = due.not_before(now);
        if let Some(turn) = self.running.get_mut(&key) {
            turn.again = Some(due.and(turn.again));
            return;
        }

        let before = self.waiting.remove(&key);
        if let Some(before) = before {
            self.unlist(&key, before);
        }
        self.enlist(key, due.and(before), now);
    }

    /// Begins the turn of the next key, if one is due and a worker is free.
    pub fn start(&mut self, now: Instant) -> Option<(K, Class)> {
        self.enlist_due(now);
        let (free, in_background) = (self.workers - self.running.len(), self.in_background());
        if free == 0 {
            return None;
        }

        let may_background = self.workers == 1 || in_background + 1 < self.workers;
        let asked = self.asked.first();
        let background = self.background.first().filter(|_| may_background);
        let (_, key) = asked.into_iter().chain(background).min()?.clone();

        let due = self.waiting.remove(&key)?;
        self.unlist(&key, due);
        let turn = Turn {
            class: due.class,
            again: None,
        };
        self.running.insert(key.clone(), turn);

        Some((key, due.class))
    }

    /// Ends the turn of a key. It is due again at `next`, and for each add during the turn.
    pub fn finish(&mut self, key: &K, next: Option<Due>, now: Instant) {
        let Some((key, turn)) = self.running.remove_entry(key) else {
            return;
        };
        let next = next.map(|next| next.not_before(now));
        // An add during the turn has waited since then.
        let due = match next {
            Some(next) => Some(next.and(turn.again)),
            None => turn.again,
        };
        if let Some(due) = due {
            self.enlist(key, due, now);
        }
    }

    /// When the first key that is not due yet is due. Keys that are due wait for [`Queue::finish`] only.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn in_background(&self) -> usize {
        let turns = self.running.values();
        turns.filter(|turn| turn.class != Class::Asked).count()
    }

    fn enlist(&mut self, key: K, due: Due, now: Instant) {
        self.waiting.insert(key.clone(), due);
        match (due.at <= now, due.class) {
            (false, _) => self.later.insert((due.at, key)),
            (true, Class::Asked) => self.asked.insert((due.rank(), key)),
            (true, _) => self.background.insert((due.rank(), key)),
        };
    }

    fn unlist(&mut self, key: &K, due: Due) {
        // It may be in one list only, which depends on the time of the last call of `enlist_due`.
        self.later.remove(&(due.at, key.clone()));
        self.asked.remove(&(due.rank(), key.clone()));
        self.background.remove(&(due.rank(), key.clone()));
    }

    /// Moves keys that are due now to the lists of those.
    fn enlist_due(&mut self, now: Instant) {
        while let Some((_, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(due) = self.waiting.get(&key).copied() else {
                return;
            };
            self.unlist(&key, due);
            self.enlist(key, due, now);
        }
    }
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
