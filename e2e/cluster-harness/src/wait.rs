//! Waits until something holds.

use std::fmt::Display;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

/// Between two probes.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
#[error("not within {limit:?}: {what}{missing}")]
pub struct TimedOut {
    what: String,
    limit: Duration,
    /// Of the last probe.
    missing: String,
}

/// The answer of a probe: a value, or the reason why there is none yet.
pub trait Answer {
    type Value;

    /// # Errors
    /// The reason; empty where a probe gives none.
    fn value(self) -> Result<Self::Value, String>;
}

impl Answer for () {
    type Value = ();

    fn value(self) -> Result<(), String> {
        Ok(())
    }
}

impl Answer for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        self.then_some(()).value()
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<A: Answer, E: Display> Answer for Result<A, E> {
    type Value = A::Value;

    fn value(self) -> Result<A::Value, String> {
        self.map_err(|error| format!("{error:#}"))?.value()
    }
}

/// Probes until there is a value. A probe that fails is repeated, too.
///
/// # Errors
/// When there is none within `limit`.
pub async fn until<A: Answer>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> A,
) -> Result<A::Value, TimedOut> {
    let deadline = Instant::now() + limit;
    loop {
        let missing = match probe().await.value() {
            Ok(value) => return Ok(value),
            Err(missing) => missing,
        };
        if Instant::now() >= deadline {
            let separator = if missing.is_empty() { "" } else { ": " };
            return Err(TimedOut {
                what: what.to_owned(),
                limit,
                missing: format!("{separator}{missing}"),
            });
        }

        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, until};

    const SHORT: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn it_waits_for_a_value() {
        let mut probes = 0;
        let found = until("three", SHORT * 10, async || {
            probes += 1;
            if probes < 2 {
                Err("an error")
            } else {
                Ok((probes == 3).then_some("found"))
            }
        });
        assert_eq!(found.await.expect("in time"), "found");
        assert_eq!(probes, 3);
    }

    #[tokio::test]
    async fn it_ends_with_the_last_reason() {
        let refused = until("it holds", SHORT, async || Err::<bool, _>("refused")).await;
        let message = refused.expect_err("never").to_string();
        assert_eq!(message, "not within 150ms: it holds: refused");

        let never = until("it holds", SHORT, async || false).await;
        assert_eq!(never.expect_err("never").to_string(), "not within 150ms: it holds");
    }
}
