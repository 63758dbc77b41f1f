//! A client of an API server over connections of [`outrigger_aws::tcp`].
//!
//! Its layers are those of `kube::Client::try_from`, which creates its sockets itself and offers no `TCP_USER_TIMEOUT`:
//! <https://docs.rs/kube-client/5.0.0/src/kube_client/client/builder.rs.html>.

use std::time::Duration;

use anyhow::{Result, bail};
use http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use outrigger_api_client::AnswerLimit;
use outrigger_aws::tcp;
use tower::util::option_layer;
use tower::{BoxError, ServiceExt as _};
use tower_http::classify::{ServerErrorsAsFailures, ServerErrorsFailureClass, SharedClassifier};
use tower_http::trace::TraceLayer;
use tracing::Span;

use crate::metrics::RestLayer;

/// A client whose requests are counted by `counted`, and whose answers are limited.
///
/// # Errors
/// When TLS refuses the certificates of the kubeconfig, or it has a `proxy-url`.
pub(super) fn client(config: &Config, tcp_user_timeout: Option<Duration>, counted: &RestLayer) -> Result<Client> {
    if config.proxy_url.is_some() {
        bail!("the kubeconfig has a proxy-url, but API servers are reached without a proxy: remove it");
    }

    let https = config.rustls_https_connector_with_connector(tcp::connector(tcp_user_timeout))?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);

    // The last layer handles a request first.
    let builder = ClientBuilder::new(http.map_err(BoxError::from), &config.default_namespace)
        .with_layer(&logging())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .with_layer(counted)
        .with_layer(&AnswerLimit::of_users());
    Ok(builder.build())
}

/// The target of the crate that logs the requests of other clients, so that one filter is for all.
const TARGET: &str = "kube_client";

type Logging = TraceLayer<
    SharedClassifier<ServerErrorsAsFailures>,
    fn(&Request<Body>) -> Span,
    fn(&Request<Body>, &Span),
    (),
    (),
    (),
    fn(ServerErrorsFailureClass, Duration, &Span),
>;

fn logging() -> Logging {
    TraceLayer::new_for_http()
        .make_span_with(span as fn(&Request<Body>) -> Span)
        .on_request(sending as fn(&Request<Body>, &Span))
        .on_response(())
        .on_body_chunk(())
        .on_eos(())
        .on_failure(failed as fn(ServerErrorsFailureClass, Duration, &Span))
}

fn span(request: &Request<Body>) -> Span {
    tracing::debug_span!(target: TARGET, "HTTP", http.method = %request.method(), http.url = %request.uri())
}

fn sending(_: &Request<Body>, _: &Span) {
    tracing::debug!(target: TARGET, "requesting");
}

fn failed(failure: ServerErrorsFailureClass, _: Duration, _: &Span) {
    match failure {
        ServerErrorsFailureClass::StatusCode(status) => tracing::error!(target: TARGET, "failed with status {status}"),
        ServerErrorsFailureClass::Error(error) => tracing::error!(target: TARGET, "failed with error {error}"),
    }
}
