//! When a Node that failed is retried. Pure: the time is an argument. It is not a [`Backoff`](crate::backoff::Backoff):
//! the first and the longest delay depend on the reason, another reason resets it, and a Node in progress is held.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use outrigger_shared::backoff::doubled;
use tokio::time::Instant;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Longest backoff while AWS does not answer. One call describes all waiting Nodes, so a retry is cheap, and new Nodes
/// must not stay unschedulable long after AWS answers again.
const MAX_BACKOFF_WITHOUT_ANSWER: Duration = Duration::from_secs(5);
/// First backoff after a conflict with another writer.
const CONFLICT_BACKOFF: Duration = Duration::from_millis(100);
/// Longer than any work on a Node takes.
const HOLD: Duration = Duration::from_secs(3600);
/// How long a Node waits before an Event reports the reason.
const EVENT_AFTER: Duration = Duration::from_secs(30);

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

impl Entry {
    fn new(uid: &str, since: Instant, due: Instant) -> Self {
        Self {
            uid: uid.to_owned(),
            failures: 0,
            since,
            due,
            reason: "",
            reported: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Log it: the reason differs from the last one.
    pub log: bool,
    /// Emit an Event: the Node has waited long for this reason.
    pub event: bool,
}

impl RetryQueue {
    /// Whether a Node may be tried now. A Node of another UID starts without backoff.
    pub fn may_try(&self, name: &str, uid: &str, now: Instant) -> bool {
        self.nodes
            .get(name)
            .is_none_or(|entry| entry.uid != uid || entry.due <= now)
    }

    /// A Node in progress is not due before its result is known.
    pub fn hold(&mut self, name: &str, now: Instant) {
        if let Some(entry) = self.nodes.get_mut(name) {
            entry.due = now + HOLD;
        }
    }

    /// Records a failure: each one doubles the backoff.
    pub fn failed(&mut self, name: &str, uid: &str, reason: &'static str, now: Instant) -> Report {
        let fresh = || Entry::new(uid, now, now);
        let entry = self.nodes.entry(name.to_owned()).or_insert_with(fresh);
        if entry.uid != uid {
            *entry = fresh();
        }

        let log = entry.reason != reason;
        if log {
            entry.failures = 0; // the former reason is over: its backoff must not delay a conflict
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
        entry.due = now + doubled(first, longest, entry.failures);
        entry.failures += 1;
        entry.reason = reason;

        let event = now.duration_since(entry.since) >= EVENT_AFTER && entry.reported != Some(reason);
        if event {
            entry.reported = Some(reason);
        }

        Report { log, event }
    }

    /// Records that a Node was initialized. The cache may still show its taint for a moment.
    pub fn settled(&mut self, name: &str, uid: &str, now: Instant) {
        let entry = Entry::new(uid, now, now + FIRST_BACKOFF);
        self.nodes.insert(name.to_owned(), entry);
    }

    pub fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub fn due(&self, now: Instant) -> BTreeSet<String> {
        self.nodes
            .iter()
            .filter(|(_, entry)| entry.due <= now)
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.nodes.values().map(|entry| entry.due).min()
    }

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
