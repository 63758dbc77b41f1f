//! `rest_client_*` and the ages of watches: requests to API servers, seen by a layer around every client.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use jiff::Timestamp;
use outrigger_api_client::{is_watch, parameters};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::buckets;
use super::catalog::Catalog;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct WatchLabels {
    watch: String,
    host: String,
}

#[derive(Debug, Clone)]
pub struct RestClient {
    requests: Family<ResultLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    answered: Family<WatchLabels, Gauge<f64, AtomicU64>>,
    ages: Arc<Mutex<BTreeMap<WatchLabels, Instant>>>,
}

impl RestClient {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            requests: catalog.labelled(
                "rest_client_requests",
                &["code", "method", "host"],
                "Requests to API servers; the code of a request without a response is <error>",
            ),
            durations: catalog.family(
                "rest_client_request_duration_seconds",
                &["verb", "host"],
                "Time from a request to its response headers; watches are not counted",
                Family::new_with_constructor(|| Histogram::new(buckets::api_request())),
            ),
            answered: catalog.labelled(
                "outrigger_watch_answered_timestamp_seconds",
                &["watch", "host"],
                "When a watch last had an answer, an event or a bookmark (API servers send one each minute); the first request where none came yet",
            ),
            ages: Arc::default(),
        }
    }

    /// How long ago the watches of a resource had an answer, the newest one counts; `None` before the first request.
    pub fn age(&self, watch: &str) -> Option<Duration> {
        let ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = ages
            .iter()
            .filter(|(labels, _)| labels.watch == watch)
            .map(|(_, at)| *at)
            .max();
        newest.map(|at| at.elapsed())
    }

    /// Removes the age of the watches of a resource, which have ended for good.
    pub fn forget(&self, watch: &str) {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        ages.retain(|labels, _| {
            let is_kept = labels.watch != watch;
            if !is_kept {
                self.answered.remove(labels);
            }
            is_kept
        });
    }

    fn answered(&self, labels: &WatchLabels) {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        ages.insert(labels.clone(), Instant::now());
        let now = Timestamp::now().as_duration().as_secs_f64();
        self.answered.get_or_create(labels).set(now);
    }

    fn requested(&self, labels: &WatchLabels) {
        let is_known = self
            .ages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(labels);
        if !is_known {
            self.answered(labels);
        }
    }

    pub fn layer(&self, server: &Uri) -> RestLayer {
        RestLayer {
            metrics: self.clone(),
            host: server.authority().map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn ended(&self, method: &Method, host: &str, code: String, took: Option<Duration>) {
        let labels = ResultLabels {
            code,
            method: method.to_string(),
            host: host.to_owned(),
        };

        self.requests.get_or_create(&labels).inc();
        if let Some(took) = took {
            let labels = DurationLabels {
                verb: method.to_string(),
                host: host.to_owned(),
            };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }
}

#[derive(Debug, Clone)]
pub struct RestLayer {
    metrics: RestClient,
    host: String,
}

impl<S> Layer<S> for RestLayer {
    type Service = RestService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RestService {
            inner,
            layer: self.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct RestService<S> {
    inner: S,
    layer: RestLayer,
}

impl<S, B, R> Service<Request<B>> for RestService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (method, layer, began) = (request.method().clone(), self.layer.clone(), Instant::now());
        let watch = watched(request.uri()).map(|watch| WatchLabels {
            watch,
            host: layer.host.clone(),
        });
        if let Some(watch) = &watch {
            layer.metrics.requested(watch);
        }
        let answer = self.inner.call(request);

        Box::pin(async move {
            let answer = answer.await;
            let code = answer
                .as_ref()
                .map_or_else(|_| "<error>".to_owned(), |answer| answer.status().as_str().to_owned());
            let took = watch.is_none().then(|| began.elapsed());
            layer.metrics.ended(&method, &layer.host, code, took);
            answer.map(|answer| with_age(answer, layer.metrics, watch))
        })
    }
}

/// The answer; what comes in it is an answer of this watch. An error is none.
fn with_age<R>(
    answer: Response<R>,
    metrics: RestClient,
    watch: Option<WatchLabels>,
) -> Response<UnsyncBoxBody<Bytes, BoxError>>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let watch = watch.filter(|_| answer.status().is_success());
    if let Some(watch) = &watch {
        metrics.answered(watch);
    }

    answer.map(|body| {
        let body = body.map_err(Into::into);
        let Some(watch) = watch else {
            return body.boxed_unsync();
        };
        body.map_frame(move |frame| {
            metrics.answered(&watch);
            frame
        })
        .boxed_unsync()
    })
}

/// The resource that a request watches, and the object where it is a single one (`leases/NAME`). The names come from this
/// program's settings, so they are few.
fn watched(uri: &Uri) -> Option<String> {
    if !is_watch(uri) {
        return None;
    }

    let resource = uri.path().rsplit('/').next().unwrap_or_default();
    let name = parameters(uri).find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
    Some(name.map_or_else(|| resource.to_owned(), |name| format!("{resource}/{name}")))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use http_body_util::{Empty, StreamBody};
    use hyper::body::Frame;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn answers_are_counted_by_code_and_watches_have_no_duration() {
        let metrics = Metrics::new();
        let server = tower::service_fn(|request: Request<()>| async move {
            let status = if request.method() == Method::PATCH { 409 } else { 200 };
            let mut answer = Response::new(Empty::new());
            *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
            Ok::<_, Infallible>(answer)
        });
        let uri = Uri::from_static("https://10.0.0.1:6443/prefix");
        let client = metrics.rest_client().layer(&uri).layer(server);
        for (method, path) in [
            ("GET", "/a"),
            ("GET", "/a?limit=5&watch=true"),
            ("PATCH", "/a?watched=true"),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            client.clone().oneshot(request).await.unwrap();
        }
        let text = metrics.prometheus().unwrap();
        for line in [
            "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"10.0.0.1:6443\"} 2",
            "rest_client_requests_total{code=\"409\",method=\"PATCH\",host=\"10.0.0.1:6443\"} 1",
            "rest_client_request_duration_seconds_count{verb=\"GET\",host=\"10.0.0.1:6443\"} 1",
            "rest_client_request_duration_seconds_count{verb=\"PATCH\",host=\"10.0.0.1:6443\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    /// The ages of the watches of Nodes and of one Lease, in seconds.
    fn ages(client: &RestClient) -> [Option<u64>; 2] {
        ["nodes", "leases/kube-controller-manager"].map(|watch| client.age(watch).map(|age| age.as_secs()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_part_of_a_watch_makes_it_young_and_a_refusal_does_not() {
        let metrics = Metrics::new();
        let server = tower::service_fn(|request: Request<()>| async move {
            let is_refused = request.uri().path().ends_with("leases");
            let parts = stream::iter([10, 30]).then(|pause| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{}\n")))
            });
            let answer = Response::builder().status(if is_refused { 403 } else { 200 });
            answer.body(StreamBody::new(parts.boxed()))
        });
        let uri = Uri::from_static("https://10.0.0.1:6443");
        let rest = metrics.rest_client();
        let client = rest.layer(&uri).layer(server);
        let get = async |path: &str| {
            let request = Request::get(path).body(()).unwrap();
            client.clone().oneshot(request).await.unwrap().into_body()
        };
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?&watch=true&fieldSelector=metadata.name%3Dkube-controller-manager";
        assert_eq!(ages(&rest), [None, None]);

        get("/api/v1/nodes").await;
        assert_eq!(ages(&rest), [None, None], "a list");
        let mut nodes = get("/api/v1/nodes?allowWatchBookmarks=true&watch=true").await;
        get(lease).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        get(lease).await;
        assert_eq!(ages(&rest), [Some(5), Some(5)], "from the first request on");
        for expected in [0, 0] {
            nodes.frame().await.unwrap().unwrap();
            assert_eq!(ages(&rest)[0], Some(expected));
        }
        assert_eq!(ages(&rest), [Some(0), Some(45)]);
        rest.forget("leases/kube-controller-manager");
        assert_eq!(ages(&rest), [Some(0), None]);
        let text = metrics.prometheus().unwrap();
        assert!(!text.contains("leases/kube-controller-manager"), "{text}");
        let line = "outrigger_watch_answered_timestamp_seconds{watch=\"nodes\",host=\"10.0.0.1:6443\"} ";
        assert!(text.contains(line), "{text}");
    }
}
