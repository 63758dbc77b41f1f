//! The limiters of one AWS service, made when they are first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::bucket_size::Budget;
use super::limiter::Limiter;
use super::task::Priority;
use crate::{Kind, Result};

/// Maximum retries of one call. The backoffs before them are 1, 2, 4, 8 and 10 s, each shortened by up to a half.
const MOST: u32 = 5;

/// A call is not retried when this time has passed since AWS throttled it first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limiters by the names of their buckets.
pub(super) struct Limiters {
    budget: Box<dyn Fn(&str) -> Budget + Send + Sync>,
    limiters: Mutex<HashMap<&'static str, Arc<Limiter>>>,
    /// Gives way when AWS throttles any call.
    reads: Option<&'static str>,
}

impl Limiters {
    /// Limiters whose buckets have these budgets.
    pub(super) fn new(budget: impl Fn(&str) -> Budget + Send + Sync + 'static) -> Self {
        Self {
            budget: Box::new(budget),
            limiters: Mutex::default(),
            reads: None,
        }
    }

    /// The same where AWS has a limit of all calls together, which the calls of this bucket may use up.
    pub(super) fn with_reads(self, reads: &'static str) -> Self {
        let reads = Some(reads);
        Self { reads, ..self }
    }

    fn limiter(&self, bucket: &'static str) -> Arc<Limiter> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Limiter::new(bucket, (self.budget)(bucket)));
        Arc::clone(limiters.entry(bucket).or_insert_with(new))
    }

    /// Sends a call when each of these buckets has a token, and reports the result to the limiters of `throttling`: any
    /// of these may be the empty one after AWS throttles the call. A throttled call is retried and keeps its position in
    /// the queue.
    pub(super) async fn call<T, F>(
        &self,
        throttling: &[&'static str],
        others: &[&'static str],
        call: impl Fn() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let arrived = |bucket: &&'static str| {
            let limiter = self.limiter(bucket);
            let position = limiter.arrive(Priority::current());
            (limiter, position)
        };
        let throttling: Vec<_> = throttling.iter().map(arrived).collect();
        let others: Vec<_> = others.iter().map(arrived).collect();
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

            if let (Some(reads), Err(error)) = (self.reads, &answer)
                && error.kind() == Kind::Throttled
            {
                self.limiter(reads).give_way();
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

/// The retries of one throttled call. No IO: the time is an argument.
#[derive(Debug, Default)]
struct Retries {
    made: u32,
    first: Option<Instant>,
}

impl Retries {
    /// AWS throttled the call. Returns whether it is to be sent again.
    fn throttled(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        let again = self.made < MOST && now.saturating_duration_since(first) < PATIENCE;
        self.made += u32::from(again);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_five_retries_within_a_minute() {
        let now = Instant::now();
        let mut retries = Retries::default();
        assert_eq!((0..9).filter(|_| retries.throttled(now)).count(), 5);

        let mut slow = Retries::default();
        assert!(slow.throttled(now));
        assert!(slow.throttled(now + Duration::from_secs(59)));
        assert!(!slow.throttled(now + Duration::from_secs(60)));
    }
}
