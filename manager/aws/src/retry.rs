//! The failures that the SDK may retry.

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority, RetryReason,
};
use aws_smithy_types::retry::ErrorKind;

/// The SDK does not retry a throttled call: [`crate::limit`] does, when the call's bucket has a token again. Broken
/// connections and AWS's own failures are retried by the SDK.
#[derive(Debug)]
pub(crate) struct NotWhenThrottled;

impl ClassifyRetry for NotWhenThrottled {
    fn classify_retry(&self, _: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(&self, _: &InterceptorContext, previous: &RetryAction) -> RetryAction {
        match previous {
            RetryAction::RetryIndicated(RetryReason::RetryableError {
                kind: ErrorKind::ThrottlingError,
                ..
            }) => RetryAction::RetryForbidden,
            _ => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "not when throttled"
    }

    /// After all of the SDK's own, whose verdict it reads.
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use aws_credential_types::Credentials;
    use aws_credential_types::provider::SharedCredentialsProvider;
    use aws_sdk_ec2::config::{BehaviorVersion, Region};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ec2::adapter::SdkEc2;
    use crate::{Ec2, Kind};

    /// An EC2 that always fails with this status and code, and counts how often it is asked.
    async fn failing(status: u16, code: &str) -> (Arc<dyn Ec2>, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let body = format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors><RequestID>r</RequestID></Response>"
        );
        let answer = format!(
            "HTTP/1.1 {status} no\r\nContent-Type: text/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 16_384];
                let _ = stream.read(&mut request).await;
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let credentials = Credentials::new("id", "secret", None, None, "test");
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(url)
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_classifier(NotWhenThrottled)
            .build();
        (
            Arc::new(SdkEc2 {
                client: aws_sdk_ec2::Client::from_conf(config),
            }),
            asked,
        )
    }

    #[tokio::test]
    async fn a_throttled_call_is_sent_once_and_a_failure_of_aws_three_times() {
        for (status, code, kind, times) in [
            (503, "RequestLimitExceeded", Kind::Throttled, 1),
            (400, "Throttling", Kind::Throttled, 1),
            (500, "InternalError", Kind::Other, 3),
            (503, "Unavailable", Kind::Other, 3),
        ] {
            let (ec2, asked) = failing(status, code).await;
            let error = ec2.availability_zones().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(asked.load(Ordering::Relaxed), times, "{code}");
        }
    }
}
