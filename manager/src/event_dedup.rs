//! Deduplicates Events, so that a failure that lasts emits few of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

/// An Event that still holds is repeated after this time: the API server keeps Events for an hour.
const REPEAT: Duration = Duration::from_secs(1800);

/// The last message about each object, by UID or another key.
#[derive(Debug, Default)]
pub struct EventDedup {
    by_key: HashMap<String, (String, Instant)>,
}

impl EventDedup {
    /// Whether to emit this message now.
    pub fn is_new(&mut self, key: &str, message: &str, now: Instant) -> bool {
        if let Some((said, at)) = self.by_key.get(key)
            && said == message
            && now.duration_since(*at) < REPEAT
        {
            return false;
        }

        self.by_key.insert(key.to_owned(), (message.to_owned(), now));
        true
    }

    /// The object has recovered.
    pub fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// Forgets objects that are gone.
    pub fn retain(&mut self, present: &HashSet<&str>) {
        self.by_key.retain(|key, _| present.contains(key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_message_comes_again_only_after_a_while_and_another_one_at_once() {
        let (mut said, now) = (EventDedup::default(), Instant::now());
        assert!(said.is_new("u", "full", now));
        assert!(!said.is_new("u", "full", now + REPEAT / 2));
        assert!(said.is_new("u", "denied", now + REPEAT / 2));
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
        said.forget("u");
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
        said.retain(&HashSet::new());
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
    }
}
