//! Keys with a class and a time. Pure: the time is an argument, and the caller waits.
//!
//! - A key has one turn at a time. If it is added during its turn, it is due again at the end of the turn: each add is
//!   followed by a turn that began after it.
//! - A key that is due waits for those of better classes, and for those of its class that were due before. One turn in
//!   [`TURNS_PER_OLDEST`] goes to the key that has been due longest, so each key gets a turn.
//! - One worker is left to keys that a user waits for, if there are several workers.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::limit::Priority;
use tokio::time::Instant;

/// Why a key is in the queue, the best class first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A user has created or changed the Service.
    Asked,
    /// A target has left.
    Deregister,
    /// A target may have joined.
    Register,
    /// The Service is deleted, or requests no load balancer any more.
    Deletion,
    /// First pass after a start.
    Start,
    /// Periodic search for drift.
    Drift,
}

impl Class {
    /// The priority of AWS calls within the manager's part of the request limits.
    pub fn priority(self) -> Priority {
        match self {
            Self::Asked => Priority::Initialize,
            Self::Deregister | Self::Register | Self::Deletion | Self::Start | Self::Drift => Priority::Lifecycle,
        }
    }
}

/// One turn in so many goes to the key that has been due longest, whatever its class.
pub const TURNS_PER_OLDEST: u32 = 8;

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
    /// Waiting keys that are not due yet.
    later: BTreeSet<(Instant, K)>,
    /// Waiting keys that are due, twice: in the order of turns, and those that are due longest first.
    due: BTreeSet<(Class, Instant, K)>,
    oldest: BTreeSet<(Instant, K)>,
    /// Turns since the last one of the key that was due longest.
    turns: u32,
}

impl<K: Ord + Clone> Queue<K> {
    /// `workers`: how many turns there are at the same time, at least one.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            later: BTreeSet::new(),
            due: BTreeSet::new(),
            oldest: BTreeSet::new(),
            turns: 0,
        }
    }

    /// Adds a key, which is due from `due` on. A key that waits already keeps its better class and earlier time. Returns
    /// whether it waits for a worker now.
    pub fn add(&mut self, key: K, due: Due, now: Instant) -> bool {
        let due = due.not_before(now);
        if let Some(turn) = self.running.get_mut(&key) {
            turn.again = Some(due.and(turn.again));
            return false;
        }

        let before = self.waiting.remove(&key);
        if let Some(before) = before {
            self.unlist(&key, before);
        }

        self.enlist(key, due.and(before), now)
    }

    /// Moves the keys that have become due to those that wait for a worker, and returns them with the times.
    pub fn enlist_due(&mut self, now: Instant) -> Vec<(K, Instant)> {
        let mut moved = Vec::new();
        while let Some((at, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&(at, key.clone()));
            if let Some(due) = self.waiting.get(&key).copied() {
                self.enlist(key.clone(), due, now);
                moved.push((key, at));
            }
        }

        moved
    }

    /// Begins the turn of the next key, if one waits for a worker and a worker is free for it.
    pub fn start(&mut self) -> Option<(K, Class)> {
        if self.running.len() == self.workers {
            return None;
        }

        let key = self.next()?;
        let due = self.waiting.remove(&key)?;
        self.unlist(&key, due);
        let turn = Turn {
            class: due.class,
            again: None,
        };
        self.running.insert(key.clone(), turn);

        Some((key, due.class))
    }

    fn next(&mut self) -> Option<K> {
        let turns = self.running.values();
        let in_background = turns.filter(|turn| turn.class != Class::Asked).count();
        let (class, _, first) = self.due.first()?;
        if self.workers > 1 && in_background + 1 >= self.workers {
            return (*class == Class::Asked).then(|| first.clone());
        }

        self.turns += 1;
        if self.turns < TURNS_PER_OLDEST {
            return Some(first.clone());
        }
        self.turns = 0;

        self.oldest.first().map(|(_, key)| key.clone())
    }

    /// Ends the turn of a key. It is due again at `next`, and for each add during the turn. Returns whether it waits for a
    /// worker now.
    pub fn finish(&mut self, key: &K, next: Option<Due>, now: Instant) -> bool {
        let Some((key, turn)) = self.running.remove_entry(key) else {
            return false;
        };
        // An add during the turn has waited since then.
        let due = match next.map(|next| next.not_before(now)) {
            Some(next) => Some(next.and(turn.again)),
            None => turn.again,
        };

        due.is_some_and(|due| self.enlist(key, due, now))
    }

    /// When the first key that is not due yet is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// The keys that have a turn.
    pub fn running(&self) -> impl Iterator<Item = &K> {
        self.running.keys()
    }

    /// The keys that wait for a worker, in the order of their turns.
    pub fn due(&self) -> impl Iterator<Item = &K> {
        self.due.iter().map(|(.., key)| key)
    }

    /// Returns whether the key waits for a worker now.
    fn enlist(&mut self, key: K, due: Due, now: Instant) -> bool {
        self.waiting.insert(key.clone(), due);
        if due.at > now {
            self.later.insert((due.at, key));
            return false;
        }

        self.oldest.insert((due.at, key.clone()));
        self.due.insert((due.class, due.at, key));
        true
    }

    fn unlist(&mut self, key: &K, due: Due) {
        // Which of them it is in depends on the time of the last call of `enlist_due`.
        self.later.remove(&(due.at, key.clone()));
        self.oldest.remove(&(due.at, key.clone()));
        self.due.remove(&(due.class, due.at, key.clone()));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
