//! How the proxy deals with a call.
//!
//! A call is worked on in a task of its own, so that it is carried out and recorded to its end even when its caller
//! is killed meanwhile: AWS does not stop either.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::net::TcpListener;

use outrigger_cluster_harness::loopback::LoopbackClient;

use super::bucket::Limits;
use super::call::{Answer, Call, Outcome};
use super::fault::{Kind, Rule, Rules, When};
use super::fleet::Fleet;
use super::gaps::{Gaps, Reply, Upstream};
use super::iam::{self, Denial, Policy};
use super::moto;
use super::query::{Identity, Query};
use super::record::CallRecord;
use super::service::Service;
use super::xml::Element;

/// Headers that belong to one connection, or that the way to moto sets anew.
const NOT_FORWARDED: [&str; 8] = [
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    "te",
    "upgrade",
];
/// State that the proxy's calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) moto: String,
    pub(super) client: LoopbackClient,
    pub(super) callers: Mutex<BTreeMap<String, String>>,
    pub(super) started: Instant,
    pub(super) record: CallRecord,
    pub(super) limits: Mutex<Option<Limits>>,
    pub(super) policy: Mutex<Option<Arc<Policy>>>,
    pub(super) rules: Arc<Rules>,
    pub(super) gaps: Gaps,
    pub(super) fleet: Mutex<Option<Arc<Fleet>>>,
}

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the AWS proxy cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };

        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| handle(Arc::clone(&shared), request));
            let mut builder = hyper::server::conn::http1::Builder::new();
            let connection = builder
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);

            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the AWS proxy ended"); // dropped by a fault, or its caller died
            }
        });
    }
}

/// The connection is to be closed without an answer; hyper does that when the service fails.
#[derive(Debug, thiserror::Error)]
#[error("dropped")]
struct Dropped;

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Dropped> {
    let arrived = Instant::now();
    let at = Timestamp::now();
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
    let form = if body.is_empty() {
        head.uri.query().unwrap_or_default().as_bytes()
    } else {
        &body
    };
    let query = Query::parse(form);
    let call = shared
        .record
        .begin(|seq| shared.call(seq, at, arrived, &head.headers, &query));
    let work = tokio::spawn(async move {
        let done = shared.answer(&call, query, &head.headers).await;
        let outcome = Outcome {
            status: done.response.as_ref().map(|response| response.status().as_u16()),
            error_code: done.response.as_ref().and_then(error_code),
            answer: done.answer,
            forwarded: done.forwarded,
            duration: arrived.elapsed(),
        };

        shared.record.end(call, outcome);
        done.response
    });

    let response = work.await.ok().flatten().ok_or(Dropped)?;

    Ok(response.map(Full::new))
}

/// How a call was dealt with. No response: the connection is dropped.
struct Done {
    response: Option<Response<Bytes>>,
    answer: Answer,
    forwarded: bool,
}

impl Done {
    fn not_forwarded(answer: Answer, response: Option<Response<Bytes>>) -> Self {
        Self {
            response,
            answer,
            forwarded: false,
        }
    }
}

impl Shared {
    fn call(&self, seq: u64, at: Timestamp, arrived: Instant, headers: &HeaderMap, query: &Query) -> Call {
        let identity = Identity::of(headers);
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let preflight = identity.is_probe(&query.action);
        Call {
            seq,
            at,
            offset: arrived.saturating_duration_since(self.started),
            caller: callers
                .get(&identity.access_key)
                .cloned()
                .unwrap_or(identity.access_key),
            service: Service::of(&identity.scope, &query.version),
            version: query.version.clone(),
            action: query.action.clone(),
            parameters: query.parameters.clone(),
            preflight,
            user_agent: identity.user_agent,
            outcome: None,
        }
    }

    async fn answer(&self, call: &Call, query: Query, headers: &HeaderMap) -> Done {
        if !self.admits(call) {
            let (status, code, message) = call.service.throttled();
            let refused = error_response(&call.service, status, code, message);
            return Done::not_forwarded(Answer::Throttle, Some(refused));
        }
        if let Some(denial) = self.denial(call, &query, headers).await {
            let refused = error_response(&call.service, denial.status, denial.code, &denial.message);
            return Done::not_forwarded(Answer::Denial, Some(refused));
        }

        let rules = self.rules.hitting(&call.caller, &call.action);
        for rule in &rules {
            if let Some(done) = before(rule, &call.service).await {
                return done;
            }
        }

        let response = self.carry_out(&call.service, query, headers).await;
        for rule in &rules {
            if !after(rule).await {
                return Done {
                    response: None,
                    answer: Answer::Fault,
                    forwarded: true,
                };
            }
        }

        Done {
            response: Some(response),
            answer: Answer::Aws,
            forwarded: true,
        }
    }

    fn admits(&self, call: &Call) -> bool {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed();
        limits
            .as_mut()
            .is_none_or(|limits| limits.admit(&call.service, &call.action, &call.parameters, now))
    }

    async fn denial(&self, call: &Call, query: &Query, headers: &HeaderMap) -> Option<Denial> {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let way = Way {
            shared: self,
            service: &call.service,
            headers,
        };
        iam::evaluate(&policy, &way, &call.service, query).await
    }

    /// Asks the fleet, or moto with its gaps filled.
    pub(super) async fn carry_out(&self, service: &Service, query: Query, headers: &HeaderMap) -> Response<Bytes> {
        let fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(fleet) = fleet.filter(|_| query.action == "DescribeInstances") {
            return match fleet.describe(&query.parameters) {
                Ok(body) => xml_response(200, body),
                Err((code, message)) => error_response(service, 400, code, &message),
            };
        }

        let way = Way {
            shared: self,
            service,
            headers,
        };

        match self.gaps.answer(&way, service, query).await {
            Ok(Reply::Moto(response)) => response,
            Ok(Reply::Body(body)) => xml_response(200, body),
            Ok(Reply::Refused(code, message)) => error_response(service, 400, code, &message),
            Err(error) => error_response(service, 500, "InternalFailure", &error.to_string()),
        }
    }

    async fn forward(&self, service: &Service, query: &Query, headers: &HeaderMap) -> Response<Bytes> {
        let mut headers = headers.clone();
        for name in NOT_FORWARDED {
            headers.remove(HeaderName::from_static(name));
        }

        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"),
        );

        match self.client.post(&self.moto, headers, query.encode().into()).await {
            Ok(answer) => {
                let content_type = answer.headers().get(CONTENT_TYPE).cloned();
                let mut response = Response::new(answer.body().clone());
                *response.status_mut() = answer.status();

                let xml = || HeaderValue::from_static("text/xml");
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, content_type.unwrap_or_else(xml));

                response
            }
            Err(error) => error_response(service, 503, "ServiceUnavailable", &error.to_string()),
        }
    }
}

/// The way to moto for one call: with the caller's own headers, and with the harness's where a gap asks another
/// service.
struct Way<'a> {
    shared: &'a Shared,
    service: &'a Service,
    headers: &'a HeaderMap,
}

impl Upstream for Way<'_> {
    async fn ask(&self, service: &Service, query: &Query) -> Response<Bytes> {
        if service == self.service {
            self.shared.forward(service, query, self.headers).await
        } else {
            self.shared.forward(service, query, &moto::headers(service)).await
        }
    }
}

/// The effect of a fault before AWS sees the call; `Some` ends it.
async fn before(rule: &Rule, service: &Service) -> Option<Done> {
    let kind = match &rule.fault.kind {
        Kind::Drop(When::AfterForwarding) | Kind::Hold(When::AfterForwarding) => return None,
        kind => kind,
    };

    rule.reached();
    let dropped = || Done::not_forwarded(Answer::Fault, None);
    match kind {
        Kind::Error { status, code } => {
            let refused = error_response(service, *status, code, "injected by the test");
            Some(Done::not_forwarded(Answer::Fault, Some(refused)))
        }
        Kind::Latency(delay) => {
            tokio::time::sleep(*delay).await;
            None
        }
        Kind::Drop(_) => Some(dropped()),
        Kind::Hold(_) => (!rule.wait().await).then(dropped),
    }
}

/// The effect of a fault after the answer of AWS; `false` drops the connection.
async fn after(rule: &Rule) -> bool {
    match rule.fault.kind {
        Kind::Drop(When::AfterForwarding) => {
            rule.reached();
            false
        }
        Kind::Hold(When::AfterForwarding) => {
            rule.reached();
            rule.wait().await
        }
        _ => true,
    }
}

fn error_response(service: &Service, status: u16, code: &str, message: &str) -> Response<Bytes> {
    let request_id = uuid::Uuid::new_v4().to_string();
    xml_response(status, service.error_body(status, code, message, &request_id))
}

fn xml_response(status: u16, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    response
}

fn error_code(response: &Response<Bytes>) -> Option<String> {
    if response.status().is_success() {
        return None;
    }
    let body = Element::parse(&String::from_utf8_lossy(response.body())).ok()?;
    body.find("Code").map(|code| code.text.clone())
}
