//! Reports every finished call to an observer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};

use crate::{Error, Kind};

/// One call that has ended, repetitions included. A paged read is one call for each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// The SDKs' name of the service, for example `EC2`.
    pub service: &'a str,
    /// The AWS action, for example `DescribeInstances`.
    pub operation: &'a str,
    /// From its start to its end, pauses before repetitions included.
    pub took: Duration,
    /// How it ended.
    pub ending: Ending<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    Success,
    /// With an error response.
    Refused {
        /// The HTTP status, 400 or more.
        status: u16,
        /// AWS's code, if the response has one.
        code: Option<&'a str>,
        kind: Kind,
    },
    /// Without a response, or with one that could not be read.
    Unanswered,
}

/// Receives the result of each call. It must not block.
pub trait CallObserver: fmt::Debug + Send + Sync {
    fn ended(&self, call: &Call<'_>);
}

/// Ignores all calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {
    fn ended(&self, _: &Call<'_>) {}
}

/// Part of every client: sees its calls begin and end.
#[derive(Debug, Clone)]
pub(crate) struct Observing(pub(crate) Arc<dyn CallObserver>);

#[derive(Debug)]
struct Began(Instant);

impl Storable for Began {
    type Storer = StoreReplace<Self>;
}

#[dyn_dispatch_hint]
impl Intercept for Observing {
    fn name(&self) -> &'static str {
        "Observing"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(Began(Instant::now()));
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let (Some(metadata), Some(began)) = (cfg.load::<Metadata>(), cfg.load::<Began>()) else {
            return Ok(());
        };

        let succeeded = matches!(context.output_or_error(), Some(Ok(_)));
        self.0.ended(&Call {
            service: metadata.service(),
            operation: metadata.name(),
            took: began.0.elapsed(),
            ending: ending(succeeded, context.response()),
        });
        Ok(())
    }
}

fn ending(succeeded: bool, response: Option<&HttpResponse>) -> Ending<'_> {
    if succeeded {
        return Ending::Success;
    }

    let refused = response.filter(|response| response.status().as_u16() >= 400);
    refused.map_or(Ending::Unanswered, |response| {
        let code = response.body().bytes().and_then(code);
        let kind = code.map_or(Kind::Other, |code| Error::answered("", code, "").kind());
        Ending::Refused {
            status: response.status().as_u16(),
            code,
            kind,
        }
    })
}

/// AWS's error code in an XML answer. The SDK has read the answer into its own error by now, which is of another type
/// for each action; the text is the same for all of EC2, Elastic Load Balancing and STS.
fn code(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    Some(code.trim())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use aws_credential_types::Credentials;
    use aws_sdk_ec2::config::{BehaviorVersion, Region, retry::RetryConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<String>>);

    impl CallObserver for Log {
        fn ended(&self, call: &Call<'_>) {
            let line = format!("{} {} {:?}", call.service, call.operation, call.ending);
            self.0.lock().unwrap().push(line);
        }
    }

    /// EC2 that gives these answers in turn, one for each connection, and then none.
    async fn ec2(answers: Vec<(u16, &'static str)>) -> (aws_sdk_ec2::Client, Arc<Log>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut asked, mut part) = (Vec::new(), [0; 8192]);
                while !asked.ends_with(b"Version=2016-11-15") {
                    let read = stream.read(&mut part).await.unwrap();
                    asked.extend(&part[..read]);
                }
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let log = Arc::<Log>::default();
        let pauses = RetryConfig::standard().with_initial_backoff(Duration::from_millis(1));
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("a", "b", None, None, "test"))
            .endpoint_url(url)
            .retry_config(pauses)
            .interceptor(Observing(Arc::clone(&log) as Arc<dyn CallObserver>));
        (aws_sdk_ec2::Client::from_conf(config.build()), log)
    }

    const THROTTLED: &str =
        "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>";
    const NONE: &str = "<DescribeAvailabilityZonesResponse></DescribeAvailabilityZonesResponse>";

    async fn told(answers: Vec<(u16, &'static str)>) -> Vec<String> {
        let (client, log) = ec2(answers).await;
        let _ = client.describe_availability_zones().send().await;
        log.0.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_call_is_told_once_whatever_it_took() {
        const CALL: &str = "EC2 DescribeAvailabilityZones";
        assert_eq!(
            told(vec![(503, THROTTLED), (200, NONE)]).await,
            [format!("{CALL} Success")]
        );
        assert_eq!(
            told(vec![(503, THROTTLED); 3]).await,
            [format!(
                "{CALL} Refused {{ status: 503, code: Some(\"RequestLimitExceeded\"), kind: Throttled }}"
            )]
        );
        assert_eq!(told(Vec::new()).await, [format!("{CALL} Unanswered")]);
    }

    #[test]
    fn the_code_is_found_in_the_answers_of_all_three_services() {
        let ec2 = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>";
        let elb = "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>";
        assert_eq!(code(ec2.as_bytes()), Some("RequestLimitExceeded"));
        assert_eq!(code(elb.as_bytes()), Some("Throttling"));
        for nothing in [&b""[..], b"<html>gateway</html>", b"<Code>cut off", b"\xff\xfe"] {
            assert_eq!(code(nothing), None);
        }
    }
}
