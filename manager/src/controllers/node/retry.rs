//! When a Node that waits is looked at again. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// First pause after a failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Longest pause after AWS did not answer. One question asks for all Nodes that wait, so it is cheap, and new Nodes
/// must not stay unschedulable long after AWS answers again.
const MAX_BACKOFF_WITHOUT_ANSWER: Duration = Duration::from_secs(5);
/// First pause after someone else's write came between.
const CONFLICT_BACKOFF: Duration = Duration::from_millis(100);
/// Longer than any work on a Node takes.
const HOLD: Duration = Duration::from_secs(3600);
/// How long a Node may wait before its Event says why.
const EVENT_AFTER: Duration = Duration::from_secs(30);

/// Nodes that wait, by name.
#[derive(Debug, Default)]
pub struct RetryQueue {
    nodes: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    uid: String,
    failures: u32,
    since: Instant,
    due: Instant,
    reason: &'static str,
    reported: Option<&'static str>,
}

/// What is worth saying about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The reason is another than last time: a line in the log.
    pub log: bool,
    /// The Node has waited long for this reason: an Event.
    pub event: bool,
}

impl RetryQueue {
    /// Whether a Node may be tried now. A Node of another UID starts afresh.
    #[must_use]
    pub fn may_try(&self, name: &str, uid: &str, now: Instant) -> bool {
        self.nodes
            .get(name)
            .is_none_or(|entry| entry.uid != uid || entry.due <= now)
    }

    /// A Node that is being worked on is not due before that has come out.
    pub fn hold(&mut self, name: &str, now: Instant) {
        if let Some(entry) = self.nodes.get_mut(name) {
            entry.due = now + HOLD;
        }
    }

    /// Notes a failure: the next try comes after a pause that doubles.
    pub fn failed(&mut self, name: &str, uid: &str, reason: &'static str, now: Instant) -> Report {
        let fresh = || Entry {
            uid: uid.to_owned(),
            failures: 0,
            since: now,
            due: now,
            reason: "",
            reported: None,
        };
        let entry = self.nodes.entry(name.to_owned()).or_insert_with(fresh);
        if entry.uid != uid {
            *entry = fresh();
        }
        let log = entry.reason != reason;
        if log {
            entry.failures = 0; // what went wrong before is over: a minute without AWS must not make a conflict wait
        }
        let first = if reason == "Conflict" {
            CONFLICT_BACKOFF
        } else {
            FIRST_BACKOFF
        };
        let longest = match reason {
            "Throttled" | "CloudError" => MAX_BACKOFF_WITHOUT_ANSWER,
            _ => MAX_BACKOFF,
        };
        let pause = first.saturating_mul(1 << entry.failures.min(10)).min(longest);
        entry.failures += 1;
        entry.due = now + pause;
        entry.reason = reason;
        let event = now.duration_since(entry.since) >= EVENT_AFTER && entry.reported != Some(reason);
        if event {
            entry.reported = Some(reason);
        }
        Report { log, event }
    }

    /// Notes that a Node was just initialized. The cache may still show it with its taint for a moment, which must
    /// not be taken for a new one.
    pub fn settled(&mut self, name: &str, uid: &str, now: Instant) {
        let entry = Entry {
            uid: uid.to_owned(),
            failures: 0,
            since: now,
            due: now + FIRST_BACKOFF,
            reason: "",
            reported: None,
        };
        self.nodes.insert(name.to_owned(), entry);
    }

    /// Forgets a Node that waits no more.
    pub fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// The names that are due.
    #[must_use]
    pub fn due(&self, now: Instant) -> BTreeSet<String> {
        self.nodes
            .iter()
            .filter(|(_, entry)| entry.due <= now)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// When the next one is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.nodes.values().map(|entry| entry.due).min()
    }

    /// How many wait, by reason.
    #[must_use]
    pub fn by_reason(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for entry in self.nodes.values().filter(|entry| !entry.reason.is_empty()) {
            *counts.entry(entry.reason).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_the_reason_is_said_once() {
        let mut list = RetryQueue::default();
        let start = Instant::now();
        assert_eq!(
            list.failed("n", "u", "InstanceNotFound", start),
            Report {
                log: true,
                event: false
            }
        );
        assert!(!list.may_try("n", "u", start));
        assert!(list.may_try("n", "u", start + FIRST_BACKOFF));
        assert!(
            list.may_try("n", "another", start),
            "a new Node of the same name does not wait"
        );
        let late = start + EVENT_AFTER;
        assert_eq!(
            list.failed("n", "u", "InstanceNotFound", late),
            Report {
                log: false,
                event: true
            }
        );
        assert_eq!(
            list.failed("n", "u", "InstanceNotFound", late),
            Report {
                log: false,
                event: false
            }
        );
        for _ in 0..20 {
            list.failed("n", "u", "InstanceNotFound", late);
        }
        assert_eq!(list.next_due(), Some(late + MAX_BACKOFF));
        assert_eq!(list.by_reason(), BTreeMap::from([("InstanceNotFound", 1)]));
    }

    #[test]
    fn while_aws_does_not_answer_pauses_stay_short() {
        let mut list = RetryQueue::default();
        let now = Instant::now();
        for reason in ["Throttled", "CloudError"] {
            for _ in 0..20 {
                list.failed("n", "u", reason, now);
            }
            assert_eq!(list.next_due(), Some(now + MAX_BACKOFF_WITHOUT_ANSWER), "{reason}");
        }
        list.failed("n", "u", "Conflict", now);
        assert_eq!(
            list.next_due(),
            Some(now + CONFLICT_BACKOFF),
            "another trouble starts afresh"
        );
        for _ in 0..20 {
            list.failed("n", "u", "AccessDenied", now);
        }
        assert_eq!(list.next_due(), Some(now + MAX_BACKOFF), "people have to act first");
    }

    #[test]
    fn a_conflict_is_tried_again_soon() {
        let mut list = RetryQueue::default();
        let now = Instant::now();
        list.failed("n", "u", "Conflict", now);
        assert_eq!(list.due(now + CONFLICT_BACKOFF), BTreeSet::from(["n".to_owned()]));
        list.hold("n", now);
        assert!(list.due(now + CONFLICT_BACKOFF).is_empty(), "it is being worked on");
        list.failed("n", "u", "Conflict", now);
        assert_eq!(list.due(now + 2 * CONFLICT_BACKOFF), BTreeSet::from(["n".to_owned()]));
        list.forget("n");
        assert_eq!(list.next_due(), None);
    }
}
