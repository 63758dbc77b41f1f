//! The steps before each request to an API server: the rate limit of `--kube-api-qps`, and the token of the controller's
//! service account.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, StatusCode, header};
use tokio::time::Instant;
use tower::BoxError;

use super::service_account::Account;
use crate::token_bucket::TokenBucket;

/// client-go's defaults, which a limit of 0 means.
const ZERO_MEANS: Rate = Rate { qps: 5.0, burst: 10.0 };

/// `--kube-api-qps` and `--kube-api-burst`, of each client by itself, as client-go has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    qps: f64,
    burst: f64,
}

impl Rate {
    pub(super) fn of(qps: f64, burst: u32) -> Self {
        Self {
            qps: if qps > 0.0 { qps } else { ZERO_MEANS.qps },
            burst: if burst > 0 { burst.into() } else { ZERO_MEANS.burst },
        }
    }
}

#[derive(Clone)]
pub(super) struct ClientLayer {
    bucket: Option<Arc<Mutex<TokenBucket>>>,
    account: Option<Arc<Account>>,
}

impl ClientLayer {
    /// `None` without a rate limit and an account.
    pub(super) fn of(rate: Option<Rate>, account: Option<Account>) -> Option<Self> {
        let layer = Self {
            bucket: rate.map(|rate| Arc::new(Mutex::new(TokenBucket::full(rate.qps, rate.burst, Instant::now())))),
            account: account.map(Arc::new),
        };
        (layer.bucket.is_some() || layer.account.is_some()).then_some(layer)
    }

    /// Sends a request when the rate allows it, with the account's token.
    pub(super) async fn send<B, R, E: Into<BoxError>, F: Future<Output = Result<Response<R>, E>>>(
        &self,
        mut request: Request<B>,
        send: impl FnOnce(Request<B>) -> F,
    ) -> Result<Response<R>, BoxError> {
        if let Some(bucket) = &self.bucket {
            let wait = bucket
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .reserve(Instant::now());
            tokio::time::sleep(wait).await;
        }

        let Some(account) = &self.account else {
            return send(request).await.map_err(Into::into);
        };

        let token = account.header().await?;
        request.headers_mut().insert(header::AUTHORIZATION, token.clone());

        let response = send(request).await.map_err(Into::into)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            account.reject(&token).await;
        }

        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate_in_order() {
        let layer = ClientLayer::of(Some(Rate::of(10.0, 3)), None).unwrap();
        let service = tower::service_fn(|request: Request<()>| {
            let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Instant::now())) };
            layer.send(request, answer)
        });
        let start = Instant::now();
        let mut waited = Vec::new();
        for answer in futures::future::join_all((0..6).map(|_| service.oneshot(Request::new(())))).await {
            waited.push((answer.unwrap().into_body() - start).as_millis());
        }
        assert_eq!(waited, [0, 0, 0, 100, 200, 300]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let again = Instant::now();
        for _ in 0..3 {
            service.oneshot(Request::new(())).await.unwrap();
        }
        assert_eq!(
            again.elapsed(),
            Duration::ZERO,
            "a rest fills the bucket, and no more than the bucket"
        );
        service.oneshot(Request::new(())).await.unwrap();
        assert_eq!(again.elapsed().as_millis(), 100);
    }

    #[test]
    fn zero_means_what_it_means_upstream_and_without_limit_and_account_there_is_no_layer() {
        assert_eq!(Rate::of(0.0, 0), Rate { qps: 5.0, burst: 10.0 });
        assert!(ClientLayer::of(None, None).is_none());
    }
}
