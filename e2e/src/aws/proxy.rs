//! The proxy: plain HTTP on loopback, in front of moto.
//!
//! A call is worked on in a task of its own, so that it is carried out and recorded to its end even when its caller
//! is killed meanwhile: AWS does not stop either.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
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
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::loopback::LoopbackClient;

use super::bucket::Limits;
use super::call::{Answer, Call, Caller, Outcome};
use super::fault::{Fault, FaultHandle, Kind, Rule, Rules, When};
use super::fleet::Fleet;
use super::gaps::{Gaps, Reply, Upstream};
use super::iam::{self, Denial, Policy};
use super::ledger::Ledger;
use super::query::{Identity, Parameters, Query};
use super::service::Service;
use super::xml::Element;
use super::{AwsError, Moto, moto};

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
/// How many recorded calls the error of a wait shows.
const SHOWN_CALLS: usize = 30;

/// A running proxy. Dropping it stops listening.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<Infallible>,
}

#[derive(Debug)]
struct Shared {
    moto: String,
    client: LoopbackClient,
    callers: Mutex<BTreeMap<String, String>>,
    started: Instant,
    ledger: Ledger,
    limits: Mutex<Option<Limits>>,
    policy: Mutex<Option<Arc<Policy>>>,
    rules: Arc<Rules>,
    gaps: Gaps,
    fleet: Mutex<Option<Arc<Fleet>>>,
}

impl Proxy {
    /// Listens on a free port of loopback in front of `moto`, without rate limits. With `record`, each call is also
    /// appended to that file, one JSON line a call.
    ///
    /// # Errors
    /// When it cannot listen or the file cannot be made.
    pub async fn start(moto: &Moto, callers: &[Caller], record: Option<&Path>) -> Result<Self, AwsError> {
        let file = record
            .map(|path| File::options().create(true).append(true).open(path))
            .transpose()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            moto: moto.url().to_owned(),
            client: LoopbackClient::default(),
            callers: Mutex::default(),
            started: Instant::now(),
            ledger: Ledger::new(file),
            limits: Mutex::default(),
            policy: Mutex::default(),
            rules: Arc::default(),
            gaps: Gaps::default(),
            fleet: Mutex::default(),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let proxy = Self { url, shared, server };
        callers.iter().for_each(|caller| proxy.add_caller(caller));
        Ok(proxy)
    }

    /// Its URL: the AWS endpoint of every process under test.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Names the process that uses this access key from now on.
    pub fn add_caller(&self, caller: &Caller) {
        let mut callers = self.shared.callers.lock().unwrap_or_else(PoisonError::into_inner);
        callers.insert(caller.access_key_id.clone(), caller.name.clone());
    }

    /// Limits rates as AWS does, with full buckets from now; or no longer.
    pub fn set_limits(&self, on: bool) {
        self.limit(on.then(Limits::default));
    }

    /// Limits rates as AWS does, with full buckets from now, in an account in which another tenant takes this part of each
    /// bucket's refill all the time.
    pub fn set_limits_beside(&self, taken: f64) {
        self.limit(Some(Limits::beside(taken)));
    }

    fn limit(&self, limits: Option<Limits>) {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Evaluates every call against this policy from now on; or allows all again.
    pub fn set_policy(&self, policy: Option<Arc<Policy>>) {
        *self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Answers DescribeInstances from a fleet from now on, without moto; or from moto again.
    pub fn set_fleet(&self, fleet: Option<Arc<Fleet>>) {
        *self.shared.fleet.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    /// Shows routes to these instances, which were terminated at moto itself, as EC2 would.
    pub fn instances_terminated(&self, ids: &[&str]) {
        self.shared.gaps.terminated(ids);
    }

    /// Injects a fault for as long as the handle lives.
    pub fn add_fault(&self, fault: Fault) -> FaultHandle {
        self.shared.rules.add(fault)
    }

    /// As [`Moto::call`], with the gaps filled as for a process under test: neither recorded nor limited.
    ///
    /// # Errors
    /// [`AwsError::Refused`] with AWS's error code, or an answer that is no XML.
    pub async fn ask(&self, service: &Service, action: &str, parameters: Parameters) -> Result<Element, AwsError> {
        let query = Query {
            action: action.to_owned(),
            version: service.api_version().to_owned(),
            parameters,
        };
        let response = self.shared.carry_out(service, query, &moto::headers(service)).await;
        moto::good(action, &response)
    }

    /// All calls so far, in order of arrival; those under way have no outcome yet.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.ledger.calls().clone()
    }

    /// The number that the next call will get: a place to count from.
    pub fn mark(&self) -> u64 {
        self.shared.ledger.calls().len() as u64
    }

    /// The calls from a mark on.
    pub fn calls_since(&self, mark: u64) -> Vec<Call> {
        self.shared
            .ledger
            .calls()
            .iter()
            .filter(|call| call.seq >= mark)
            .cloned()
            .collect()
    }

    /// How often each caller called each action.
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for call in self.shared.ledger.calls().iter() {
            *counts.entry((call.caller.clone(), call.action.clone())).or_default() += 1;
        }
        counts
    }

    /// Every call from now on, as it ends.
    pub fn subscribe(&self) -> broadcast::Receiver<Call> {
        self.shared.ledger.subscribe()
    }

    /// Waits until the calls so far satisfy `look`, and returns what it found. `what` completes "no … within 5 s".
    ///
    /// # Errors
    /// [`AwsError::NotSeen`] with the last calls.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&[Call]) -> Option<T>,
    ) -> Result<T, AwsError> {
        let mut changes = self.shared.ledger.changes();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(&self.shared.ledger.calls()) {
                    return found;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await; // cannot be: the ledger lives in self
                }
            }
        };
        match tokio::time::timeout(within, found).await {
            Ok(found) => Ok(found),
            Err(_) => {
                let calls = self.calls();
                let last = calls[calls.len().saturating_sub(SHOWN_CALLS)..].iter();
                let last = last.map(ToString::to_string).collect::<Vec<_>>().join("\n");
                Err(AwsError::NotSeen {
                    what: what.to_owned(),
                    seconds: within.as_secs_f64(),
                    last,
                })
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
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
        .ledger
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
        shared.ledger.end(call, outcome);
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
            preflight: identity.user_agent.contains("preflight"),
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

    fn fleet(&self) -> Option<Arc<Fleet>> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the fleet, or moto with its gaps filled.
    async fn carry_out(&self, service: &Service, query: Query, headers: &HeaderMap) -> Response<Bytes> {
        if let Some(fleet) = self.fleet().filter(|_| query.action == "DescribeInstances") {
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

/// The way to moto for one call: with the caller's own headers, and with the harness's where a gap asks another service.
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

/// What a fault does before AWS sees the call; `Some` ends it.
async fn before(rule: &Rule, service: &Service) -> Option<Done> {
    match rule.kind() {
        Kind::Error { status, code } => {
            rule.reached();
            let message = "injected by the test";
            Some(Done::not_forwarded(
                Answer::Fault,
                Some(error_response(service, *status, code, message)),
            ))
        }
        Kind::Latency(delay) => {
            rule.reached();
            tokio::time::sleep(*delay).await;
            None
        }
        Kind::Drop(When::BeforeForwarding) => {
            rule.reached();
            Some(Done::not_forwarded(Answer::Fault, None))
        }
        Kind::Hold(When::BeforeForwarding) => {
            rule.reached();
            (!rule.wait().await).then(|| Done::not_forwarded(Answer::Fault, None))
        }
        Kind::Drop(When::AfterForwarding) | Kind::Hold(When::AfterForwarding) => None,
    }
}

/// What a fault does once AWS has answered; `false` drops the connection.
async fn after(rule: &Rule) -> bool {
    match rule.kind() {
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
