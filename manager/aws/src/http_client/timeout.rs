//! Time limits of parts of a request.

use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;

#[derive(Debug, thiserror::Error)]
#[error("{part} timeout occurred after {after:?}")]
pub(super) struct TimedOut {
    part: &'static str,
    after: Duration,
}

/// Runs `future` for at most `limit`.
pub(super) async fn within<T, E: Into<BoxError>>(
    part: &'static str,
    limit: Option<Duration>,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    let Some(after) = limit else {
        return future.await.map_err(Into::into);
    };

    match tokio::time::timeout(after, future).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(TimedOut { part, after }.into()),
    }
}
