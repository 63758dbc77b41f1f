//! Results of the scenarios.

use std::collections::BTreeMap;
use std::time::Duration;

use outrigger_aws_sim::{Answer, Call, is_write};

use super::candidate::Candidate;
use super::cluster::Requests;
use crate::usage::Usage;

/// Calls to AWS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsCalls {
    pub by_action: BTreeMap<String, usize>,
    /// Calls that AWS refused for their rate.
    pub throttled: usize,
}

impl AwsCalls {
    pub fn of_calls<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut counted = Self::default();
        for call in calls {
            *counted.by_action.entry(call.action.clone()).or_default() += 1;
            let outcome = call.outcome.as_ref();
            counted.throttled += usize::from(outcome.is_some_and(|outcome| outcome.answer == Answer::Throttle));
        }
        counted
    }

    pub fn total(&self) -> usize {
        self.by_action.values().sum()
    }

    pub fn of(&self, action: &str) -> usize {
        self.by_action.get(action).copied().unwrap_or_default()
    }

    pub fn writes(&self) -> usize {
        let writes = self.by_action.iter().filter(|(action, _)| is_write(action));
        writes.map(|(_, count)| count).sum()
    }

    pub fn reads(&self) -> usize {
        self.total() - self.writes()
    }

    /// Such as `1 DescribeSubnets, 5 DescribeTags`.
    pub fn list(&self) -> String {
        let each = self.by_action.iter().map(|(action, count)| format!("{count} {action}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The program that a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The minimal loop of [`super::cold::baseline`].
    Baseline,
    Manager(Candidate),
}

impl Subject {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Manager(candidate) => candidate.name(),
        }
    }
}

/// A cold start, or Nodes that leave.
#[derive(Debug, Clone)]
pub struct Work {
    pub by: Subject,
    pub nodes: usize,
    /// Nodes that were done in time.
    pub done: usize,
    /// Whether AWS's limits were on.
    pub limited: bool,
    /// Time until the first was done.
    pub first: Duration,
    /// Time until the last was done.
    pub last: Duration,
    pub aws: AwsCalls,
    /// Requests to the API server, with the Events that follow.
    pub requests: Requests,
    /// Usage of the process; none for the baseline.
    pub usage: Option<Usage>,
}

/// Two minutes of nothing but heartbeats.
#[derive(Debug, Clone)]
pub struct Steady {
    pub candidate: Candidate,
    pub nodes: usize,
    /// From the start of the process until it had nothing more to do.
    pub settled_after: Duration,
    /// The incumbent with its defaults never settles.
    pub settled: bool,
    /// Calls to AWS until then, with the first refresh of all Nodes.
    pub start: AwsCalls,
    /// Time of the measurement. All following values are of this time.
    pub window: Duration,
    pub aws: AwsCalls,
    /// Requests to the API server, without heartbeats.
    pub requests: Requests,
    pub processor: Duration,
    /// Memory at the end.
    pub usage: Usage,
    pub heartbeats: u64,
}

/// All results of one run.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// moto's own time for one describe of [`super::cloud::MOTO_INSTANCES`], if it was measured.
    pub moto_describe: Option<Duration>,
    /// Cold starts and their baselines.
    pub cold: Vec<Work>,
    pub steady: Vec<Steady>,
    pub leaving: Vec<Work>,
    /// Errors. With one, the run has no result.
    pub failures: Vec<String>,
}

impl Results {
    pub fn cold(&self, by: Subject, nodes: usize, limited: bool) -> Option<&Work> {
        let mut rows = self.cold.iter();
        rows.find(|work| (work.by, work.nodes, work.limited) == (by, nodes, limited))
    }
}
