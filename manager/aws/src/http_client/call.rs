//! Sends a request of the SDK, and classifies its failure for the SDK's retries.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connection::{CaptureSmithyConnection, ConnectionMetadata};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use http::header::PROXY_AUTHORIZATION;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::limit::{attempt_unanswered, may_send};

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
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
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

        // The SDK closes a connection on which a request failed.
        let connection = capture_connection(&mut request);
        if let Some(capture) = request.extensions().get::<CaptureSmithyConnection>() {
            capture.set_connection_retriever(move || metadata(&connection));
        }

        let answer = within("HTTP read", self.read_timeout, self.client.request(request));
        HttpConnectorFuture::new(async move {
            // The last moment: credentials and rate limits may have taken long.
            if !may_send() {
                return Err(ConnectorError::user(
                    "the right to write ended before the request was sent".into(),
                ));
            }

            let answer = answer.await.inspect_err(|error| {
                if !is_connect(&**error) {
                    attempt_unanswered();
                }
            });
            let answer = answer.map_err(classify)?;
            let answer = HttpResponse::try_from(answer.map(SdkBody::from_body_1_x));
            answer.map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// Whether a request failed before it was sent.
fn is_connect(error: &(dyn Error + 'static)) -> bool {
    source::<legacy::Error>(error).is_some_and(legacy::Error::is_connect)
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
