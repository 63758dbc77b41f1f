//! `rest_client_*`: requests to API servers, seen by a layer around every client.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;
use tower::{Layer, Service};

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

#[derive(Debug, Clone)]
pub struct RestClient {
    requests: Family<ResultLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
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
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (method, layer, began) = (request.method().clone(), self.layer.clone(), Instant::now());
        let watch = is_watch(request.uri());
        let answer = self.inner.call(request);

        Box::pin(async move {
            let answer = answer.await;
            let code = answer
                .as_ref()
                .map_or_else(|_| "<error>".to_owned(), |answer| answer.status().as_str().to_owned());
            let took = (!watch).then(|| began.elapsed());
            layer.metrics.ended(&method, &layer.host, code, took);
            answer
        })
    }
}

fn is_watch(uri: &Uri) -> bool {
    let mut parts = uri.query().unwrap_or_default().split('&');
    parts.any(|part| part == "watch=true" || part == "watch=1")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn answers_are_counted_by_code_and_watches_have_no_duration() {
        let metrics = Metrics::new();
        let server = tower::service_fn(|request: Request<()>| async move {
            let status = if request.method() == Method::PATCH { 409 } else { 200 };
            let mut answer = Response::new(());
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
}
