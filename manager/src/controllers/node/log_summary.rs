//! Summarizes failures of many Nodes: one log line per reason and second.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct LogSummary {
    reasons: BTreeMap<&'static str, Entry>,
    last_logged: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    count: usize,
    node: String,
    error: String,
}

impl LogSummary {
    /// Records a Node; the first of each reason is the example.
    pub(super) fn add(&mut self, reason: &'static str, node: &str, error: impl FnOnce() -> String) {
        let entry = self.reasons.entry(reason).or_insert_with(|| Entry {
            count: 0,
            node: node.to_owned(),
            error: error(),
        });
        entry.count += 1;
    }

    /// When to log next; `None`: nothing to log.
    pub(super) fn due(&self) -> Option<Instant> {
        let soonest = || self.last_logged.map_or_else(Instant::now, |logged| logged + PERIOD);
        (!self.reasons.is_empty()).then(soonest)
    }

    /// Logs one line per reason, and returns their number.
    pub(super) fn log(&mut self, what: &str, now: Instant) -> usize {
        self.last_logged = Some(now);
        let reasons = std::mem::take(&mut self.reasons);
        for (reason, Entry { count, node, error }) in &reasons {
            tracing::warn!(reason, nodes = count, example = node, error, "{what}");
        }
        reasons.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_nodes_of_one_reason_are_one_line_a_second() {
        let mut summary = LogSummary::default();
        assert_eq!(summary.due(), None);
        for number in 0..1000 {
            summary.add("Throttled", &format!("n{number}"), || "slow down".into());
        }
        summary.add("NoZone", "m", || "x".into());
        let now = Instant::now();
        assert_eq!(summary.due(), Some(now));
        assert_eq!(summary.log("the Nodes wait", now), 2);
        summary.add("Throttled", "n", || "slow down".into());
        assert_eq!(summary.due(), Some(now + PERIOD));
    }
}
