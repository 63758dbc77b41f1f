//! Paths of the admission port.
//!
//! | path | answer |
//! |---|---|
//! | `POST /mutate` | a review of an object in the webhook's own cluster |
//! | `POST /mutate/NAME` | a review from the cluster of migration NAME |
//! | `POST /validate`, `POST /validate/NAME` | the same objects: may they be written |
//! | anything else | 404, 405 |
//!
//! Errors are one line of plain text, which the API server copies into its own error or audit annotation.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::{HeaderMap, StatusCode, header};
use outrigger_serving::{Aborted, Source};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;

use crate::admit::{Endpoint, NotAdmitted, Reviewer};
use crate::bodies::Bodies;
use crate::body::{self, BodyError};
use crate::callers::{ApiServers, Rank};
use crate::decision_threads::DecisionThreads;
use crate::duration;
use crate::memory_budget::MemoryBudget;
use crate::shares::Shares;

/// At most this much of the caller's timeout is reserved for sending the response.
const RESPONSE_MARGIN: Duration = Duration::from_millis(200);

/// The source of requests that come by no connection, as in tests.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Limits for requests of one server.
#[derive(Debug, Clone)]
pub struct RequestLimits {
    /// Bytes of one body. The API server's own limit for an object is 3 MiB, and a review holds an object twice.
    pub body: usize,
    /// Bytes of all bodies that are being read or decided.
    pub memory: usize,
    /// Memory for the objects of all requests, in bytes. One request gets at most half of it.
    pub objects: usize,
    /// Requests whose body is complete, that are being decided.
    pub requests: usize,
    /// Bodies that are being received.
    pub bodies: usize,
    /// Time for one request, unless its `timeout` parameter is shorter.
    pub time: Duration,
}

#[derive(Debug)]
struct AdmissionHandler {
    reviewer: Arc<Reviewer>,
    api_servers: Arc<ApiServers>,
    limits: RequestLimits,
    slots: Arc<Shares>,
    bodies: Arc<Bodies>,
    threads: DecisionThreads,
    memory: Arc<Shares>,
    /// Memory for objects: half for API servers, half for other callers.
    objects: [Arc<Semaphore>; 2],
}

#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("too many concurrent requests")]
    Busy,
    #[error("the content type is not application/json")]
    ContentType,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("no answer within {} ms", .0.as_millis())]
    TooSlow(Duration),
    #[error("the answer cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
}

impl RequestError {
    const fn class(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::ContentType => "content_type",
            Self::Body(BodyError::TooLarge { .. }) => "too_large",
            Self::Body(BodyError::NoMemory) => "no_memory",
            Self::Body(BodyError::TooSlow { .. } | BodyError::BelowRate) => "body_too_slow",
            Self::Body(BodyError::Displaced) => "body_displaced",
            Self::Body(BodyError::Broken { .. }) => "body_broken",
            Self::NotAdmitted(error) => error.class(),
            Self::TooSlow(_) => "timeout",
            Self::Encode(_) => "encode",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            // No Retry-After beside it: the API server's client would wait that long before the failure policy.
            Self::Busy
            | Self::Body(BodyError::NoMemory | BodyError::Displaced)
            | Self::NotAdmitted(NotAdmitted::NotReady | NotAdmitted::NoMemory) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::TooSlow { .. } | BodyError::BelowRate) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyError::Broken { .. }) | Self::NotAdmitted(NotAdmitted::Malformed(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::TooSlow(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

pub fn router(reviewer: Arc<Reviewer>, api_servers: Arc<ApiServers>, limits: RequestLimits) -> Router {
    let handler = Arc::new(AdmissionHandler {
        api_servers,
        slots: Shares::new(limits.requests),
        bodies: Bodies::new(limits.bodies),
        threads: DecisionThreads::of_this_machine(),
        memory: Shares::new(limits.memory),
        objects: [(); 2].map(|()| Arc::new(Semaphore::new(limits.objects / 2))),
        reviewer,
        limits,
    });
    Router::new()
        .route("/mutate", to(Endpoint::Mutate))
        .route("/mutate/{migration}", to(Endpoint::Mutate))
        .route("/validate", to(Endpoint::Validate))
        .route("/validate/{migration}", to(Endpoint::Validate))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "no such path; use /mutate, /mutate/NAME, /validate or /validate/NAME\n",
            )
        })
        .layer(CatchPanicLayer::new())
        .with_state(handler)
}

fn to(endpoint: Endpoint) -> MethodRouter<Arc<AdmissionHandler>> {
    post(
        move |State(handler): State<Arc<AdmissionHandler>>, name: Option<Path<String>>, request: Request| async move {
            let name = name.as_ref().map(|Path(name)| name.as_str());
            handler.answer(endpoint, name, request).await
        },
    )
}

impl AdmissionHandler {
    async fn answer(&self, endpoint: Endpoint, path: Option<&str>, request: Request) -> Response {
        let begin = Instant::now();
        let answer = self
            .review(endpoint, path, request)
            .await
            .unwrap_or_else(|error| self.refuse(&error));
        self.reviewer.metrics.took(begin.elapsed());
        answer
    }

    async fn review(&self, endpoint: Endpoint, path: Option<&str>, request: Request) -> Result<Response, RequestError> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(RequestError::ContentType);
        }

        let time = self
            .limits
            .time
            .min(requested_timeout(parts.uri.query()).unwrap_or(Duration::MAX));
        let source = parts.extensions.get::<Source>().map_or(UNKNOWN, |source| source.0);
        let caller = self.api_servers.caller(source);
        // No limit counts the memory of headers, so they are not kept while the request waits.
        drop(parts);

        let reading = async {
            let place = self.bodies.add(caller, Instant::now());
            let memory = self.memory.empty(caller);
            let held = body::read(body, (self.limits.body, time), memory, &place).await?;
            drop(place);
            self.reviewer.metrics.caller(caller.rank);

            // Only a complete body takes a slot: a caller that sends none must not keep others out. No queue: a server
            // at its limit answers at once, before the timeout of the caller.
            let _slot = self.slots.take(caller, 1).ok_or(RequestError::Busy)?;
            let [of_api_servers, of_others] = &self.objects;
            let objects = match caller.rank {
                Rank::ApiServer => of_api_servers,
                Rank::Other => of_others,
            };
            let budget = MemoryBudget::new(objects, self.limits.objects / 2);
            let threads = (&self.threads, caller);
            let response = self
                .reviewer
                .admit(threads, (endpoint, path), held.bytes.clone(), budget);
            let response = response.await?;
            Ok(held.answer(serde_json::to_vec(&response)?))
        };
        let answer = tokio::time::timeout(time, reading)
            .await
            .unwrap_or(Err(RequestError::TooSlow(time)))?;

        Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(answer)).into_response())
    }

    fn refuse(&self, error: &RequestError) -> Response {
        self.reviewer.metrics.error(error.class());
        tracing::warn!(class = error.class(), %error, "answered request with an error");

        let mut response = (error.status(), format!("{error}\n")).into_response();
        if matches!(error, RequestError::Body(BodyError::Broken { .. })) {
            response.extensions_mut().insert(Aborted);
        }

        if matches!(error, RequestError::Body(_)) {
            // The rest of the body is not read, so an HTTP/1.1 connection cannot be reused.
            response
                .headers_mut()
                .insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }

        response
    }
}

/// Ignores parameters such as `charset=utf-8`.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    value
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The timeout that the API server sends with each call (`?timeout=3s`), less a margin, so that the API server receives
/// the reason instead of a timeout.
fn requested_timeout(query: Option<&str>) -> Option<Duration> {
    let text = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    let time = duration::parse(text).ok().filter(|time| !time.is_zero())?;
    Some(time - (time / 10).min(RESPONSE_MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_with_and_without_parameters() {
        let told =
            |value: &'static str| is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().unwrap())]));
        assert!(
            told("application/json")
                && told("Application/JSON; charset=utf-8")
                && told("application/json;charset=UTF-8")
        );
        assert!(!told("text/plain") && !told("application/jsonp") && !is_json(&HeaderMap::new()));
    }

    #[test]
    fn the_callers_time_is_read_from_the_query_and_a_little_less_is_used() {
        assert_eq!(requested_timeout(Some("timeout=3s")), Some(Duration::from_millis(2800)));
        assert_eq!(
            requested_timeout(Some("a=b&timeout=500ms")),
            Some(Duration::from_millis(450))
        );
        for none in [
            None,
            Some(""),
            Some("timeout=soon"),
            Some("timeout=0s"),
            Some("xtimeout=3s"),
        ] {
            assert_eq!(requested_timeout(none), None, "{none:?}");
        }
    }
}
