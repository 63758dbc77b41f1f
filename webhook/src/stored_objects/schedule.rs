//! When each migration is checked next.

use std::collections::HashMap;
use std::time::Duration;

use kube::ResourceExt;
use outrigger_shared::migration::CloudProviderMigration;
use tokio::time::Instant;

use crate::view::MigrationSnapshot;

/// Pause after the first check of a spec. It doubles with each further check: objects get the form of a new phase soon
/// after the change.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Schedule {
    by_name: HashMap<String, Due>,
}

struct Due {
    /// UID and generation of the last checked object.
    spec: (Option<String>, Option<i64>),
    at: Instant,
    pause: Duration,
}

impl Schedule {
    /// Whether to check the migration now: its spec has changed, or its pause is over.
    pub fn is_due(&mut self, migration: &CloudProviderMigration, now: Instant) -> bool {
        let spec = (migration.uid(), migration.metadata.generation);
        match self.by_name.get(&migration.name_any()) {
            Some(due) if due.spec == spec => now >= due.at,
            _ => {
                let due = Due {
                    spec,
                    at: now,
                    pause: FIRST_PAUSE,
                };
                self.by_name.insert(migration.name_any(), due);
                true
            }
        }
    }

    /// The migration was checked. The next check of the same spec follows at most `every` later.
    pub fn checked(&mut self, name: &str, now: Instant, every: Duration) {
        if let Some(due) = self.by_name.get_mut(name) {
            let pause = due.pause.min(every);
            due.at = now + pause;
            due.pause = pause * 2;
        }
    }

    pub fn retain(&mut self, known: &MigrationSnapshot) {
        self.by_name
            .retain(|name, _| known.iter().any(|migration| migration.name_any() == *name));
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// When the next pause is over.
    pub fn next(&self) -> Option<Instant> {
        self.by_name.values().map(|due| due.at).min()
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::migration::CloudProviderMigrationSpec;

    use super::*;

    const EVERY: Duration = Duration::from_secs(300);

    fn migration(generation: i64) -> CloudProviderMigration {
        let mut migration = CloudProviderMigration::new("x", CloudProviderMigrationSpec::new("x"));
        migration.metadata.generation = Some(generation);
        migration
    }

    #[test]
    fn a_new_spec_is_checked_at_once_and_then_at_growing_intervals() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        assert!(schedule.is_due(&migration(1), start));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            schedule.checked("x", now, EVERY);
            let next = schedule.next().unwrap();
            pauses.push((next - now).as_secs());
            assert!(!schedule.is_due(&migration(1), now));
            now = next;
            assert!(schedule.is_due(&migration(1), now));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);

        schedule.checked("x", now, EVERY);
        assert!(schedule.is_due(&migration(2), now), "the phase has changed");
        schedule.checked("x", now, EVERY);
        assert_eq!(schedule.next(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn an_object_that_was_created_again_is_checked_at_once() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        assert!(schedule.is_due(&migration(1), now));
        schedule.checked("x", now, EVERY);
        let mut again = migration(1);
        again.metadata.uid = Some("other".into());
        assert!(schedule.is_due(&again, now));
    }
}
