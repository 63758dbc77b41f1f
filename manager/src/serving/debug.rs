//! `/debug`: the log's verbosity while the process runs. There is no profile of Go's kind to serve.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{any, get, put};
use http::StatusCode;

use super::routes::text;
use crate::logs::Verbosity;

const NO_PROFILES: &str = "404 no profiles: this is no Go program, so /debug/pprof has nothing that `go tool pprof` can read; \
     use perf on the process, and /metrics for memory, CPU time and queues\n";

/// The paths under `/debug`, there with `--profiling` only, as in the incumbent.
pub(super) fn router<S: Clone + Send + Sync + 'static>(verbosity: Verbosity) -> Router<S> {
    let no_profiles = || async { text(StatusCode::NOT_FOUND, NO_PROFILES.into()) };
    let index = || async { text(StatusCode::OK, "/debug/flags/v: PUT a number to change --v\n".into()) };
    let wrong = || async { text(StatusCode::NOT_ACCEPTABLE, "unsupported http method; use PUT\n".into()) };

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
        let message = format!("failed to set the verbosity to {wanted:?}: expected a whole number from 0 on\n");
        return text(StatusCode::BAD_REQUEST, message);
    };

    match verbosity.set(level) {
        Ok(()) => {
            tracing::info!(level, "a request changed the log verbosity");
            text(
                StatusCode::OK,
                format!("successfully set klog.logging.verbosity to {level}\n"),
            )
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
