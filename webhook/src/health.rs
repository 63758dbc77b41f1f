//! Probes and metrics, on a port of their own without TLS: the kubelet and a scraper hold no client certificate, and a
//! probe must not depend on the certificate that it checks.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | 200 while the process runs |
//! | `/readyz` | 200 when reviews can be decided; otherwise 503 and one line for each reason |
//! | `/registration` | 200, and one line for each difference of the registration from what the migrations need |
//! | `/metrics` | OpenMetrics text |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::Reloader;
use outrigger_serving::{ConnectionLimits, WhenFull};
use tokio_util::sync::CancellationToken;

use crate::admit::Reviewer;
use crate::registration_check::Report;
use crate::self_signed::Obstacle;

#[derive(Debug)]
pub struct Health {
    pub reviewer: Arc<Reviewer>,
    pub certificates: Arc<Reloader>,
    /// The reason why there is no certificate yet.
    pub obstacle: Arc<Obstacle>,
    pub registration: Arc<Report>,
    /// Cancelled on SIGTERM.
    pub stopping: CancellationToken,
}

impl Health {
    /// Reasons to send reviews to another replica; empty when this one is ready.
    pub fn unready(&self, now: Timestamp) -> Vec<String> {
        let certificate = self.certificates.current();
        let reasons = [
            (self.stopping.is_cancelled(), "shutting down"),
            (
                self.reviewer.migrations.known().is_none(),
                "the migrations have not been listed yet",
            ),
            (
                !self.reviewer.namespaces.listed(),
                "the namespaces have not been listed yet",
            ),
            (
                certificate.as_ref().is_some_and(|pair| !pair.is_valid_at(now)),
                "the serving certificate is not valid now",
            ),
        ];
        let reasons = reasons.into_iter().filter(|(holds, _)| *holds);
        let mut texts: Vec<String> = reasons.map(|(_, reason)| reason.to_owned()).collect();
        if certificate.is_none() {
            texts.push(format!("there is no serving certificate yet: {}", self.obstacle));
        }
        texts
    }
}

pub fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/registration", get(registration))
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// The health port needs no client certificate, so idle connections must neither lock out the kubelet nor use up the
/// file descriptors that the admission port needs.
pub const fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections: 128,
        reserved: 16,
        per_source: 64,
        when_full: WhenFull::EndIdle,
        streams: 1,
        handshake: Duration::from_secs(5),
        header: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        age: Duration::from_secs(600),
        drain: Duration::from_secs(2),
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    let reasons = health.unready(Timestamp::now());
    if reasons.is_empty() {
        return "ok\n".into_response();
    }

    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("not ready: {}\n", reasons.join("; ")),
    )
        .into_response()
}

/// A difference does not change the status: a replica that is not ready would get even fewer reviews.
async fn registration(State(health): State<Arc<Health>>) -> String {
    match health.registration.lines() {
        None => "not compared yet\n".to_owned(),
        Some(lines) if lines.is_empty() => "ok\n".to_owned(),
        Some(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let certificate = health.certificates.current();
    // Before the first one there is none that could expire later.
    let days_left = certificate.map_or(0.0, |pair| pair.days_left(Timestamp::now()));
    let metrics = &health.reviewer.metrics;
    metrics.certificate(days_left, health.certificates.failures());
    match metrics.text() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
