//! How every write to an API server is sent.

use std::time::Duration;

use outrigger_leader::{NotLeader, Permit};
use tokio::time::timeout;

/// How long one write may take. The API server's own limit is 60 s, and a webhook's at most 30 s.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends a write, if `permit` allows it, and waits for the answer as long as it does. A server that never answers, as
/// behind a connection that broke unnoticed, must not keep a worker for ever.
///
/// # Errors
/// [`NotLeader`] when the write was not sent, or was cut off because the permit ended.
pub async fn write<T>(
    permit: &Permit,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, kube::Error>, NotLeader> {
    let answer = permit.guard(timeout(LIMIT, call)).await?;
    Ok(answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_does_not_keep_the_caller() {
        let never = std::future::pending::<Result<(), kube::Error>>();
        let answer = write(&Permit::always(), never).await;
        assert!(matches!(answer, Ok(Err(kube::Error::Service(_)))));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_nothing_is_sent() {
        let (_grantor, permit) = Permit::pair();
        let mut sent = false;
        let call = async {
            sent = true;
            Ok(())
        };
        assert!(write(&permit, call).await.is_err());
        assert!(!sent);
    }
}
