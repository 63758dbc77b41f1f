//! The gates of one AWS service, made when they are first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::bucket_size::Shape;
use super::limiter::Gate;
use super::priority::Lane;
use super::retries::Retries;
use crate::{Error, Kind};

/// The buckets that a call takes a token of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a> {
    /// Those that are taken to be empty when AWS throttles the call.
    pub throttling: &'a [&'static str],
    /// The others.
    pub others: &'a [&'static str],
}

impl<'a> Buckets<'a> {
    /// Buckets any of which may be the empty one.
    pub(super) fn throttling(throttling: &'a [&'static str]) -> Self {
        Self {
            throttling,
            others: &[],
        }
    }
}

/// Gates by the names of their buckets.
pub(super) struct Gates {
    shape: Box<dyn Fn(&str) -> Shape + Send + Sync>,
    gates: Mutex<HashMap<&'static str, Arc<Gate>>>,
}

impl Gates {
    /// Gates whose buckets have these shapes.
    pub(super) fn new(shape: impl Fn(&str) -> Shape + Send + Sync + 'static) -> Self {
        Self {
            shape: Box::new(shape),
            gates: Mutex::default(),
        }
    }

    fn gate(&self, bucket: &'static str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Gate::new(bucket, (self.shape)(bucket)));
        Arc::clone(gates.entry(bucket).or_insert_with(new))
    }

    /// Sends a call when there is a token in each of these buckets, and tells their gates what AWS said. A throttled call
    /// is sent again; meanwhile it keeps its position among the calls that wait.
    pub(super) async fn call<T, F>(&self, buckets: Buckets<'_>, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let arrived = |bucket: &&'static str| {
            let gate = self.gate(bucket);
            let position = gate.arrive(Lane::current());
            (gate, position)
        };
        let throttling: Vec<_> = buckets.throttling.iter().map(arrived).collect();
        let others: Vec<_> = buckets.others.iter().map(arrived).collect();
        let mut retries = Retries::default();

        loop {
            for (gate, position) in throttling.iter().chain(&others) {
                gate.pass(*position).await;
            }
            let sent = Instant::now();
            let answer = call().await;

            for (gate, _) in &throttling {
                match &answer {
                    Err(error) if error.kind() == Kind::Throttled => gate.throttled(sent),
                    Err(error) if error.kind() == Kind::Transport => {}
                    _ => gate.answered(sent),
                }
            }
            match answer {
                Err(error) if error.kind() == Kind::Throttled && retries.throttled(Instant::now()) => {}
                answer => return answer,
            }
        }
    }

    /// How long a call that comes now in this task's lane, and lets `ahead` others go first that have not come yet, would
    /// wait for a token of this bucket.
    pub(super) fn expected_wait(&self, bucket: &'static str, ahead: u32) -> Duration {
        self.gate(bucket).expected_wait(Lane::current(), ahead)
    }
}
