//! Sends a request of the SDK, and classifies its failure for the SDK's retries.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connection::{CaptureSmithyConnection, ConnectionMetadata};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use http::header::{PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::limit::{Priority, attempt_unanswered, may_send};

use super::connector::{Connector, Paths, TimedOut, within};

/// A pool of connections, and the time limit of an answer.
pub(super) struct Caller {
    client: Client<Connector, SdkBody>,
    paths: Arc<Paths>,
    read_timeout: Option<Duration>,
}

impl Caller {
    pub(super) fn new(paths: Arc<Paths>, connect_timeout: Option<Duration>, read_timeout: Option<Duration>) -> Self {
        let connector = Connector {
            paths: Arc::clone(&paths),
            timeout: connect_timeout,
        };
        // Without a timer the pool never closes an idle connection.
        // The SDK repeats a request itself, and asks `may_send` again.
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .retry_canceled_requests(false)
            .build(connector);

        Self {
            client,
            paths,
            read_timeout,
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("paths", &self.paths)
            .field("read_timeout", &self.read_timeout)
            .finish_non_exhaustive()
    }
}

impl HttpConnector for Caller {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut request = match request.try_into_http1x() {
            Ok(request) => request,
            Err(error) => return HttpConnectorFuture::ready(Err(ConnectorError::user(error.into()))),
        };

        if let Some(authorization) = self.paths.authorization(request.uri()) {
            let entry = request.headers_mut().entry(PROXY_AUTHORIZATION);
            entry.or_insert_with(|| authorization.clone());
        }

        if Priority::current() == Priority::DryRun {
            mark_dry_run(request.headers_mut());
        }

        // The SDK closes a connection on which a request failed.
        let connection = capture_connection(&mut request);
        let taken = connection.clone();
        if let Some(capture) = request.extensions().get::<CaptureSmithyConnection>() {
            capture.set_connection_retriever(move || metadata(&connection));
        }
        let answer = within("HTTP read", self.read_timeout, self.client.request(request));
        HttpConnectorFuture::new(async move {
            let mut answer = Box::pin(answer);
            // Credentials, rate limits and a new connection may take long. The step that takes a connection sends the request.
            let answer = poll_fn(|context| {
                if taken.connection_metadata().is_none() && !may_send() {
                    return Poll::Ready(Err(NotSent.into()));
                }
                answer.as_mut().poll(context)
            });
            let answer = answer.await;

            if has_no_answer(&answer) {
                attempt_unanswered();
            }
            let answer = answer.map_err(classify)?;
            let answer = HttpResponse::try_from(answer.map(SdkBody::from_body_1_x));
            answer.map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// The user agent is no part of the signature.
fn mark_dry_run(headers: &mut HeaderMap) {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let agent = format!("{} dry-run", agent.unwrap_or_default());
    if let Ok(agent) = HeaderValue::try_from(agent) {
        headers.insert(USER_AGENT, agent);
    }
}

/// The permit of a write ended before it was sent.
#[derive(Debug, thiserror::Error)]
#[error("the permit ended before the request was sent")]
struct NotSent;

/// Whether AWS may still carry out a request. A gateway that gave up on it says nothing about it. hyper cancels only what it
/// has not begun to send.
fn has_no_answer<B>(answer: &Result<http::Response<B>, BoxError>) -> bool {
    match answer {
        Ok(answer) => matches!(
            answer.status(),
            http::StatusCode::BAD_GATEWAY | http::StatusCode::GATEWAY_TIMEOUT
        ),
        Err(error) => {
            let is_connect = source::<legacy::Error>(&**error).is_some_and(legacy::Error::is_connect);
            let is_canceled = source::<hyper::Error>(&**error).is_some_and(hyper::Error::is_canceled);
            !is_connect && !is_canceled && source::<NotSent>(&**error).is_none()
        }
    }
}

fn metadata(connection: &CaptureConnection) -> Option<ConnectionMetadata> {
    let is_proxied = connection.connection_metadata().as_ref()?.is_proxied();
    let connection = connection.clone();
    let poison = move || {
        if let Some(connected) = connection.connection_metadata().as_ref() {
            connected.poison();
        }
    };
    let metadata = ConnectionMetadata::builder().proxied(is_proxied);
    Some(metadata.poison_fn(poison).build())
}

/// The kinds that the SDK's own client gives, which decide whether the SDK retries.
fn classify(error: BoxError) -> ConnectorError {
    if source::<NotSent>(&*error).is_some() {
        return ConnectorError::user(error);
    }

    if source::<TimedOut>(&*error).is_some() {
        return ConnectorError::timeout(error);
    }

    if let Some(cause) = source::<hyper::Error>(&*error) {
        return match cause {
            _ if cause.is_timeout() => ConnectorError::timeout(error),
            _ if cause.is_user() => ConnectorError::user(error),
            _ if cause.is_closed() || cause.is_canceled() || source::<std::io::Error>(cause).is_some() => {
                ConnectorError::io(error)
            }
            _ if cause.is_incomplete_message() => ConnectorError::other(error, Some(ErrorKind::TransientError)),
            _ => ConnectorError::other(error, None),
        };
    }

    match source::<legacy::Error>(&*error) {
        Some(cause) if cause.is_connect() || source::<std::io::Error>(cause).is_some() => ConnectorError::io(error),
        _ => ConnectorError::other(error, None),
    }
}

/// The first error of a type among an error and its causes.
fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}
