//! How every write to AWS is sent.

use std::time::Duration;

use outrigger_aws::{Error, Kind};
use outrigger_leader::{NotLeader, Permit};
use tokio::time::timeout;

/// How long one write may take, the SDK's own repetitions included.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends a write, if `permit` allows it, for no longer than the permit lasts at the beginning. The SDK repeats a call
/// that AWS throttles, so the permit is looked at before each repetition, too. A write that is cut off or unanswered
/// may have taken effect; the next look tells.
///
/// # Errors
/// [`NotLeader`] when the write was not sent, or was cut off because the permit ended.
pub async fn write<T>(
    permit: &Permit,
    action: &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, NotLeader> {
    let limit = permit.remaining().unwrap_or(LIMIT).min(LIMIT);
    let answer = permit.guard(timeout(limit, call)).await?;
    let answer = answer.unwrap_or_else(|_| Err(Error::unanswered(action, "AWS did not answer in time")));
    if let Err(error) = &answer
        && error.kind() == Kind::Transport
    {
        permit.note_unanswered();
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_aws_that_never_answers_does_not_outlast_the_permit() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(5));
        let started = Instant::now();
        let never = std::future::pending::<Result<(), Error>>();
        assert!(!matches!(write(&permit, "CreateRoute", never).await, Ok(Ok(()))));
        assert!(started.elapsed() <= Duration::from_secs(5));
        assert!(grantor.unanswered_within(Duration::from_secs(60)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_nothing_is_sent() {
        let (_grantor, permit) = Permit::pair();
        let mut sent = false;
        let call = async {
            sent = true;
            Ok(())
        };
        assert!(write(&permit, "CreateRoute", call).await.is_err());
        assert!(!sent);
    }
}
