//! The gates of one AWS service, made when they are first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::gate::Gate;
use super::lane::Lane;
use super::shape::Shape;
use crate::{Error, Kind};

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

    /// Waits for a token of this bucket and takes it.
    pub(super) async fn pass(&self, bucket: &'static str) {
        self.gate(bucket).pass(Lane::current()).await;
    }

    /// Sends a call when there is a token in each of these buckets, and tells their gates what AWS said.
    pub(super) async fn call<T>(
        &self,
        buckets: &[&'static str],
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let gates: Vec<Arc<Gate>> = buckets.iter().map(|bucket| self.gate(bucket)).collect();
        for gate in &gates {
            gate.pass(Lane::current()).await;
        }
        let sent = Instant::now();
        let answer = call.await;
        for gate in &gates {
            match &answer {
                Err(error) if error.kind() == Kind::Throttled => gate.throttled(sent),
                Err(error) if error.kind() == Kind::Transport => {}
                _ => gate.answered(sent),
            }
        }
        answer
    }

    /// How long a call that comes now in this task's lane, and lets `ahead` others go first that have not come yet, would
    /// wait for a token of this bucket.
    pub(super) fn expected_wait(&self, bucket: &'static str, ahead: u32) -> Duration {
        self.gate(bucket).expected_wait(Lane::current(), ahead)
    }
}
