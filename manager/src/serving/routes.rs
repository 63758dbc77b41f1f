//! The paths.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, get, put};
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::authorization::{Access, Asked, Verdict};
use super::health::{Health, Probe};
use crate::logs::Verbosity;
use crate::metrics::Metrics;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PATHS: &str = "404 not found; served are /healthz, /livez, /readyz (each also with /NAME of a check), /metrics, \
     /metrics/slis, /configz and, with --profiling, /debug/flags/v\n";

pub struct Surface {
    pub health: Health,
    pub metrics: Metrics,
    pub configz: serde_json::Value,
    /// The level that `/debug/flags/v` sets; `None` without `--profiling`.
    pub verbosity: Option<Verbosity>,
}

#[derive(Clone)]
struct Shared {
    health: Health,
    metrics: Metrics,
    configz: Arc<str>,
}

/// The router of the manager's port. Every path, also one that does not exist, is behind `access`.
pub fn router(surface: Surface, access: Arc<Access>) -> Router {
    let probe = |path: &'static str, probe: Probe| {
        let all = move |state: State<Shared>, query: RawQuery| async move { report(&state.health, probe, path, query) };
        let one = move |state: State<Shared>, name: Path<String>| async move { single(&state.health, probe, &name) };
        Router::new()
            .route(&format!("/{path}"), get(all))
            .route(&format!("/{path}/{{name}}"), get(one))
    };
    let guarded = |is_served| {
        let access = Arc::clone(&access);
        middleware::from_fn_with_state(Gate { access, is_served }, guard)
    };
    let nothing = Router::new()
        .fallback(|| async { text(StatusCode::NOT_FOUND, PATHS) })
        .layer(guarded(false));
    Router::new()
        .merge(probe("healthz", Probe::Alive))
        .merge(probe("livez", Probe::Alive))
        .merge(probe("readyz", Probe::Ready))
        .route("/metrics", get(metrics_text))
        .route("/metrics/slis", get(slis).delete(reset_slis))
        .route("/configz", get(configz))
        .merge(surface.verbosity.map(debug_router).unwrap_or_default())
        .with_state(Shared {
            health: surface.health,
            metrics: surface.metrics,
            configz: surface.configz.to_string().into(),
        })
        .route_layer(guarded(true))
        .fallback_service(nothing)
}

#[derive(Clone)]
struct Gate {
    access: Arc<Access>,
    is_served: bool,
}

async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let token = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let verb = request.method().as_str().to_ascii_lowercase();
    let asked = Asked {
        verb: &verb,
        path: request.uri().path(),
        is_served: gate.is_served,
        token,
        peer: request.extensions().get(),
        headers: request.headers(),
    };

    match gate.access.decide(&asked).await {
        Verdict::Allowed => next.run(request).await,
        Verdict::Unauthenticated => {
            let mut response = text(StatusCode::UNAUTHORIZED, "Unauthorized\n");
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Verdict::Forbidden => text(
            StatusCode::FORBIDDEN,
            "Forbidden: this path needs permission for nonResourceURLs\n",
        ),
        Verdict::Busy => {
            let mut response = text(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests need a review by the API server; retry later\n",
            );
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Verdict::Unknown => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the API server did not answer the review of this request; see the log\n",
        ),
    }
}

/// `?verbose` lists the checks, `?exclude=NAME` leaves one out; a failure always lists them.
fn report(health: &Health, probe: Probe, path: &'static str, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let parts = || query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    let excluded: Vec<String> = parts()
        .filter(|(key, _)| *key == "exclude")
        .map(|(_, name)| name.to_owned())
        .collect();
    let report = health.report(probe, path, &excluded);

    match (report.healthy, parts().any(|(key, _)| key == "verbose")) {
        (true, false) => text(StatusCode::OK, "ok"),
        (true, true) => text(StatusCode::OK, format!("{}{path} check passed\n", report.lines)),
        (false, _) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{}{path} check failed\n", report.lines),
        ),
    }
}

fn single(health: &Health, probe: Probe, name: &str) -> Response {
    match health.one(probe, name) {
        Some(Ok(())) => text(StatusCode::OK, "ok"),
        Some(Err(reason)) => {
            tracing::warn!(check = name, reason, "a health check failed");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal server error: reason withheld\n",
            )
        }
        None => text(StatusCode::NOT_FOUND, "404 no such check\n"),
    }
}

/// Prometheus' text format, as the incumbent's, or OpenMetrics if the client accepts it with at least the same weight.
async fn metrics_text(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let (encoded, kind) = if prefers_open_metrics(&headers) {
        (shared.metrics.encode(), OPEN_METRICS)
    } else {
        (shared.metrics.prometheus(), PROMETHEUS)
    };
    exposition(encoded, kind)
}

fn exposition(encoded: Result<String, std::fmt::Error>, kind: HeaderValue) -> Response {
    match encoded {
        Ok(body) => {
            let mut response = text(StatusCode::OK, body);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n")
        }
    }
}

async fn slis(State(shared): State<Shared>) -> Response {
    exposition(shared.health.slis.encode(), PROMETHEUS)
}

async fn reset_slis(State(shared): State<Shared>) -> Response {
    shared.health.slis.reset();
    text(StatusCode::OK, "metrics reset\n")
}

async fn configz(State(shared): State<Shared>) -> Response {
    let mut response = text(StatusCode::OK, shared.configz.to_string());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Reads the header `Accept`: a list of media types, each with a weight `q` from 0 to 1, 1 if there is none.
fn prefers_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut open_metrics, mut plain) = (0.0_f32, 0.0_f32);
    for part in accepted.flat_map(|value| value.split(',')) {
        let mut parameters = part.split(';').map(str::trim);
        let kind = parameters.next().unwrap_or_default();
        let weight = parameters
            .find_map(|parameter| parameter.strip_prefix("q="))
            .map_or(1.0, |weight| weight.parse().unwrap_or(0.0));

        match kind {
            "application/openmetrics-text" => open_metrics = open_metrics.max(weight),
            "text/plain" => plain = plain.max(weight),
            _ => {}
        }
    }

    open_metrics > 0.0 && open_metrics >= plain
}

/// A plain text response that is not cached.
fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

const NO_PROFILES: &str = "404 no profiles: this is not a Go program, so /debug/pprof has nothing that `go tool pprof` can read; \
     use perf on the process, and /metrics for memory, CPU time and queues\n";

/// The paths under `/debug`, there with `--profiling` only, as in the incumbent.
fn debug_router<S: Clone + Send + Sync + 'static>(verbosity: Verbosity) -> Router<S> {
    let no_profiles = || async { text(StatusCode::NOT_FOUND, NO_PROFILES) };
    let index = || async { text(StatusCode::OK, "/debug/flags/v: PUT a number to change --v\n") };
    let wrong = || async { text(StatusCode::NOT_ACCEPTABLE, "unsupported http method; use PUT\n") };

    Router::new()
        .route("/debug/flags", get(index))
        .route("/debug/flags/v", put(set_verbosity).fallback(wrong))
        .with_state(verbosity)
        .route("/debug/pprof", any(no_profiles))
        .route("/debug/pprof/", any(no_profiles))
        .route("/debug/pprof/{*profile}", any(no_profiles))
}

async fn set_verbosity(State(verbosity): State<Verbosity>, body: String) -> Response {
    let wanted = body.trim();
    let Ok(level) = wanted.parse::<u32>() else {
        let message = format!("failed to set the verbosity to {wanted:?}: expected a whole number of 0 or more\n");
        return text(StatusCode::BAD_REQUEST, message);
    };

    match verbosity.set(level) {
        Ok(()) => {
            tracing::info!(level, "a request changed the log verbosity");
            let message = format!("successfully set klog.logging.verbosity to {level}\n");
            text(StatusCode::OK, message)
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_likes_best() {
        let prefers = |accept: &'static str| {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))];
            prefers_open_metrics(&headers.into_iter().collect())
        };
        assert!(prefers(
            "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
        ));
        assert!(!prefers(
            "text/plain;version=0.0.4;q=0.6, application/openmetrics-text; q=0.5"
        ));
        assert!(!prefers("application/openmetrics-text;q=0, */*"));
        assert!(!prefers("*/*"));
        assert!(!prefers_open_metrics(&HeaderMap::new()));
    }
}
