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
    let noted = async {
        let answer = timeout(LIMIT, call).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))));
        // While the write still counts as in flight: the lease is released only after that.
        if answer.as_ref().is_err_and(is_unanswered) {
            permit.note_unanswered();
        }
        answer
    };

    permit.guard(noted).await
}

/// As [`write`], for an Event. No other owner depends on Events: one that is cut off by the end of the permit does not keep the
/// lease from being released.
///
/// # Errors
/// As [`write`].
pub async fn write_event<T>(
    permit: &Permit,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, kube::Error>, NotLeader> {
    let in_time = async {
        let answer = timeout(LIMIT, call).await;
        answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
    };

    permit.guard_sends(in_time, || true).await
}

/// Whether the server may still carry out the write: its answer did not come, or not completely.
fn is_unanswered(error: &kube::Error) -> bool {
    matches!(
        error,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_)
    )
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
    async fn an_event_that_is_cut_off_does_not_keep_the_lease() {
        let minute = Duration::from_secs(60);
        for is_event in [true, false] {
            let (grantor, permit) = Permit::pair();
            grantor.extend(tokio::time::Instant::now() + Duration::from_secs(1));
            let never = std::future::pending::<Result<(), kube::Error>>();
            let began = tokio::time::Instant::now();
            let cut = match is_event {
                true => write_event(&permit, never).await,
                false => write(&permit, never).await,
            };
            assert!(cut.is_err() && began.elapsed() <= Duration::from_secs(1));
            assert_eq!(grantor.unanswered_within(minute), !is_event);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_noted_and_an_answered_one_is_not() {
        let (grantor, permit) = Permit::pair();
        let renew = || grantor.extend(tokio::time::Instant::now() + Duration::from_secs(60));
        let minute = Duration::from_secs(60);

        renew();
        let refused = kube::Error::Api(Box::new(kube::core::Status::failure("no", "Forbidden")));
        assert!(write(&permit, async { Err::<(), _>(refused) }).await.is_ok());
        assert!(!grantor.unanswered_within(minute));

        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let broken = kube::Error::Service(Box::new(broken));
        assert!(write(&permit, async { Err::<(), _>(broken) }).await.is_ok());
        assert!(grantor.unanswered_within(minute));

        tokio::time::sleep(minute).await;
        renew();
        assert!(!grantor.unanswered_within(minute));
        let never = std::future::pending::<Result<(), kube::Error>>();
        assert!(write(&permit, never).await.is_ok());
        assert!(grantor.unanswered_within(minute));
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
