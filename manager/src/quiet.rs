//! One line in the log for each cause, not one for each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many causes are kept apart; more than that means that something changing is part of a cause.
const CAUSES: usize = 1024;

/// Says how often the same thing may be said.
///
/// ```
/// # use outrigger_manager::quiet::Quiet;
/// let quiet = Quiet::once_a_second();
/// if let Some(suppressed) = quiet.say("AccessDenied") {
///     tracing::warn!(suppressed, "AWS denies the call");
/// }
/// ```
#[derive(Debug)]
pub struct Quiet {
    every: Duration,
    said: Mutex<HashMap<String, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    suppressed: u64,
}

impl Quiet {
    /// Each cause at most once in this time.
    #[must_use]
    pub fn every(every: Duration) -> Self {
        Self {
            every,
            said: Mutex::default(),
        }
    }

    /// Each cause at most once in a second.
    #[must_use]
    pub fn once_a_second() -> Self {
        Self::every(Duration::from_secs(1))
    }

    /// `Some` when this cause may be said now, with the number of times that it was not since it was last said.
    pub fn say(&self, cause: &str) -> Option<u64> {
        self.say_at(cause, Instant::now())
    }

    fn say_at(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |said: &Said| now.saturating_duration_since(said.at) < self.every;
        if let Some(last) = said.get_mut(cause) {
            if fresh(last) {
                last.suppressed += 1;
                return None;
            }
            last.at = now;
            return Some(std::mem::take(&mut last.suppressed));
        }
        if said.len() >= CAUSES {
            said.retain(|_, last| fresh(last));
        }
        if said.len() >= CAUSES {
            return None;
        }
        said.insert(cause.to_owned(), Said { at: now, suppressed: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_cause_is_said_once_a_second_with_a_count_of_what_was_not() {
        let (quiet, start) = (Quiet::once_a_second(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(quiet.say_at("a", start), Some(0));
        assert_eq!(quiet.say_at("a", start + second / 2), None);
        assert_eq!(quiet.say_at("b", start + second / 2), Some(0), "another cause");
        assert_eq!(quiet.say_at("a", start + second), Some(1));
        assert_eq!(quiet.say_at("a", start + second * 2), Some(0));
    }

    #[test]
    fn causes_without_end_neither_fill_the_memory_nor_the_log() {
        let (quiet, start) = (Quiet::once_a_second(), Instant::now());
        let said = (0..10 * CAUSES)
            .filter_map(|n| quiet.say_at(&n.to_string(), start))
            .count();
        assert_eq!(said, CAUSES);
        assert_eq!(quiet.say_at("later", start + Duration::from_secs(1)), Some(0));
    }
}
