//! What was measured.

use std::time::Duration;

use super::environment::{Asked, Kind};
use crate::manager::candidate::Candidate;
use crate::usage::Usage;

/// What one look at a Service costs at which nothing is to be done.
#[derive(Debug, Clone)]
pub struct Unchanged {
    pub candidate: Candidate,
    /// Its load balancer.
    pub kind: Kind,
    /// How many looks were measured.
    pub looks: usize,
    /// What AWS was asked by all of them.
    pub asked: Asked,
}

/// A start with load balancers in place.
#[derive(Debug, Clone)]
pub struct Restart {
    pub candidate: Candidate,
    /// Services with a classic load balancer.
    pub classic: usize,
    /// Services with a network load balancer.
    pub network: usize,
    /// From the start of the process to its last call of AWS.
    pub last: Duration,
    /// What AWS was asked.
    pub asked: Asked,
    /// What the process used.
    pub usage: Usage,
}

/// Many new Services at once.
#[derive(Debug, Clone)]
pub struct Burst {
    pub candidate: Candidate,
    pub services: usize,
    /// Until the last had its address.
    pub last: Duration,
    /// What AWS was asked.
    pub asked: Asked,
}

/// Everything of one run.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// Looks without effect.
    pub unchanged: Vec<Unchanged>,
    pub restarts: Vec<Restart>,
    /// New Services.
    pub bursts: Vec<Burst>,
    /// What went wrong: no result then.
    pub failures: Vec<String>,
}
