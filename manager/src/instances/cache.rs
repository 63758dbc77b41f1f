//! Cached answers and their age. Pure: the time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Instance, InstanceId, InstanceState};
use tokio::time::Instant;

use super::key::{Answer, Key};

/// How long an answer is kept: three refreshes at the default period. So old an answer only shows which IDs EC2 listed
/// before.
const KEEP: Duration = Duration::from_secs(900);
/// Period of the removal of old answers.
const SWEEP: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Entry {
    /// When the call began.
    asked: Instant,
    answer: Answer,
}

/// The cached answers. Failures are not cached.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
    swept: Option<Instant>,
}

impl Cache {
    /// The answer, if its call began at most `max_age` ago.
    pub(super) fn fresh(&self, key: &Key, max_age: Duration, now: Instant) -> Option<Answer> {
        let entry = self.entries.get(key)?;
        (now.saturating_duration_since(entry.asked) <= max_age && !max_age.is_zero()).then(|| entry.answer.clone())
    }

    /// Whether EC2 last listed this ID, and not as terminated.
    pub(super) fn is_living(&self, id: &InstanceId) -> bool {
        let entry = self.entries.get(&Key::Id(id.clone()));
        entry.is_some_and(|entry| {
            matches!(&entry.answer, Answer::Found(instance) if instance.state != Some(InstanceState::Terminated))
        })
    }

    /// Caches the answer of a call that began at `asked`, unless that of a later call is cached.
    pub(super) fn put(&mut self, key: Key, answer: &Answer, asked: Instant) {
        if let (Key::Dns(_) | Key::Ip(_), Answer::Found(instance)) = (&key, answer) {
            self.put(Key::Id(instance.id.clone()), answer, asked);
        }

        if matches!(answer, Answer::Failed(_)) || self.entries.get(&key).is_some_and(|entry| entry.asked > asked) {
            return;
        }

        let answer = answer.clone();
        self.entries.insert(key, Entry { asked, answer });
    }

    /// Removes old answers, at most once per [`SWEEP`].
    pub(super) fn sweep(&mut self, now: Instant) {
        if self
            .swept
            .is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP)
        {
            return;
        }

        self.swept = Some(now);
        self.entries
            .retain(|_, entry| now.saturating_duration_since(entry.asked) <= KEEP);
    }

    /// How many answers are kept, and how many instances they are about.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

pub(super) fn by_id(found: Vec<Instance>) -> HashMap<InstanceId, Answer> {
    let answers = found.into_iter();
    answers
        .map(|instance| (instance.id.clone(), Answer::Found(Arc::new(instance))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str) -> Answer {
        Answer::Found(Arc::new(Instance::new(id)))
    }

    #[test]
    fn an_answer_serves_those_who_accept_its_age() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let key = Key::Id(InstanceId::new("i-1"));
        cache.put(key.clone(), &found("i-1"), start);
        let later = start + Duration::from_secs(10);
        assert!(cache.fresh(&key, Duration::from_secs(10), later).is_some());
        assert!(cache.fresh(&key, Duration::from_secs(9), later).is_none());
        assert!(
            cache.fresh(&key, Duration::ZERO, start).is_none(),
            "no age at all wants a new call"
        );
    }

    #[test]
    fn failures_are_not_kept_and_a_late_answer_does_not_replace_a_newer_one() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let key = Key::Id(InstanceId::new("i-1"));
        let second = Duration::from_secs(1);
        cache.put(key.clone(), &Answer::Absent, start + second);
        cache.put(key.clone(), &found("i-1"), start);
        let failed = Answer::Failed(outrigger_aws::Error::unanswered("DescribeInstances", "x"));
        cache.put(key.clone(), &failed, start + second * 2);
        assert!(matches!(
            cache.fresh(&key, second * 9, start + second * 2),
            Some(Answer::Absent)
        ));
    }

    #[test]
    fn an_instance_found_by_name_is_known_by_its_id_too() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        cache.put(Key::Dns("n".into()), &found("i-1"), start);
        assert!(cache.is_living(&InstanceId::new("i-1")));
        assert!(!cache.is_living(&InstanceId::new("i-2")));
    }

    #[test]
    fn old_answers_are_thrown_away() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        cache.put(Key::Dns("n".into()), &found("i-1"), start);
        cache.sweep(start + KEEP);
        assert_eq!(cache.len(), 2);
        cache.sweep(start + KEEP + SWEEP);
        assert_eq!(cache.len(), 0);
    }
}
