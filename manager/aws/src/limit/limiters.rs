//! The limiters of one AWS service, made when they are first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::bucket_size::BucketSize;
use super::limiter::Limiter;
use super::priority::Priority;
use super::retries::Retries;
use crate::{Error, Kind};

/// The buckets that a call takes a token of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a> {
    /// The buckets that count as empty after AWS throttles the call.
    pub throttling: &'a [&'static str],
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

/// Limiters by the names of their buckets.
pub(super) struct Limiters {
    size: Box<dyn Fn(&str) -> BucketSize + Send + Sync>,
    limiters: Mutex<HashMap<&'static str, Arc<Limiter>>>,
}

impl Limiters {
    /// Limiters whose buckets have these shapes.
    pub(super) fn new(size: impl Fn(&str) -> BucketSize + Send + Sync + 'static) -> Self {
        Self {
            size: Box::new(size),
            limiters: Mutex::default(),
        }
    }

    fn limiter(&self, bucket: &'static str) -> Arc<Limiter> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Limiter::new(bucket, (self.size)(bucket)));
        Arc::clone(limiters.entry(bucket).or_insert_with(new))
    }

    /// Sends a call when each of these buckets has a token, and reports the result to their limiters. A throttled call
    /// is retried and keeps its position in the queue.
    pub(super) async fn call<T, F>(&self, buckets: Buckets<'_>, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let arrived = |bucket: &&'static str| {
            let limiter = self.limiter(bucket);
            let position = limiter.arrive(Priority::current());
            (limiter, position)
        };
        let throttling: Vec<_> = buckets.throttling.iter().map(arrived).collect();
        let others: Vec<_> = buckets.others.iter().map(arrived).collect();
        let mut retries = Retries::default();

        loop {
            for (limiter, position) in throttling.iter().chain(&others) {
                limiter.acquire(*position).await;
            }

            let sent = Instant::now();
            let answer = call().await;

            for (limiter, _) in &throttling {
                match &answer {
                    Err(error) if error.kind() == Kind::Throttled => limiter.throttled(sent),
                    Err(error) if error.kind() == Kind::Transport => {}
                    _ => limiter.answered(sent),
                }
            }

            match answer {
                Err(error) if error.kind() == Kind::Throttled && retries.throttled(Instant::now()) => {}
                answer => return answer,
            }
        }
    }

    /// The expected wait for a token of this bucket, in this task's priority, after `ahead` calls that are not queued
    /// yet.
    pub(super) fn expected_wait(&self, bucket: &'static str, ahead: u32) -> Duration {
        self.limiter(bucket).expected_wait(Priority::current(), ahead)
    }
}
