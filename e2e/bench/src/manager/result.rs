//! What comes out of the scenarios, as numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::candidate::Candidate;
use super::requests::Requests;
use crate::usage::Usage;

/// Calls to AWS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsCalls {
    /// How often each action was called.
    pub by_action: BTreeMap<String, usize>,
    /// How many of them AWS refused for their rate.
    pub throttled: usize,
}

impl AwsCalls {
    /// All together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.by_action.values().sum()
    }

    /// Of one action.
    #[must_use]
    pub fn of(&self, action: &str) -> usize {
        self.by_action.get(action).copied().unwrap_or_default()
    }
}

/// Who did the work of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The bare loop.
    Baseline,
    Manager(Candidate),
}

impl Who {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "floor",
            Self::Manager(candidate) => candidate.name(),
        }
    }
}

/// What one piece of work took: a cold start, or Nodes that go.
#[derive(Debug, Clone)]
pub struct Work {
    pub who: Who,
    /// How many Nodes it was about.
    pub nodes: usize,
    /// How many were done in time.
    pub done: usize,
    /// Whether AWS limited rates as it does.
    pub limited: bool,
    /// Until the first was done.
    pub first: Duration,
    /// Until the last was done.
    pub last: Duration,
    /// What AWS was asked.
    pub aws: AwsCalls,
    /// What the API server was asked, Events that came later included.
    pub requests: Requests,
    /// What the process used, work that came later included; none for the loop.
    pub usage: Option<Usage>,
}

/// Two minutes of nothing but heartbeats.
#[derive(Debug, Clone)]
pub struct Steady {
    pub candidate: Candidate,
    /// How many Nodes.
    pub nodes: usize,
    /// From the start of the process until it had nothing more to do.
    pub settled_after: Duration,
    /// Whether it came to that: the incumbent goes on asking.
    pub settled: bool,
    /// What AWS was asked until then: the first refresh of all Nodes among it.
    pub start: AwsCalls,
    /// How long was measured.
    pub window: Duration,
    /// What AWS was asked in that time.
    pub aws: AwsCalls,
    /// What the API server was asked in that time, without heartbeats.
    pub requests: Requests,
    /// Processor time of that time.
    pub processor: Duration,
    /// Memory at its end.
    pub usage: Usage,
    /// Heartbeats sent in that time.
    pub heartbeats: u64,
}

/// Everything of one run.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// moto's own time for one describe of [`super::cloud::MOTO_INSTANCES`], if it was measured.
    pub moto_describe: Option<Duration>,
    /// Cold starts and their baselines.
    pub cold: Vec<Work>,
    /// Steady state.
    pub steady: Vec<Steady>,
    /// Nodes that leave.
    pub leaving: Vec<Work>,
    /// What went wrong: no result then.
    pub failures: Vec<String>,
}

impl Results {
    /// The row of a cold start.
    #[must_use]
    pub fn cold(&self, who: Who, nodes: usize, limited: bool) -> Option<&Work> {
        let mut rows = self.cold.iter();
        rows.find(|work| (work.who, work.nodes, work.limited) == (who, nodes, limited))
    }
}
