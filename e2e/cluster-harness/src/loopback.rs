//! Plain HTTP/1.1 to servers on loopback: health probes, and the way to the simulated AWS.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use thiserror::Error;

/// Why a request got no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    #[error("request to {url}: {source}")]
    Request { url: String, source: http::Error },
    #[error("{url}: {reason}")]
    Transport {
        url: String,
        /// With its causes.
        reason: String,
    },
}

/// A client that keeps its connections; clones share them.
#[derive(Debug, Clone)]
pub struct LoopbackClient {
    inner: Client<HttpConnector, Full<Bytes>>,
}

impl Default for LoopbackClient {
    fn default() -> Self {
        Self {
            inner: Client::builder(TokioExecutor::new()).build_http(),
        }
    }
}

impl LoopbackClient {
    /// POSTs `body` with `headers` to `url` and reads the whole answer.
    ///
    /// # Errors
    /// [`HttpError`]; an HTTP status is no error here.
    pub async fn post(&self, url: &str, headers: HeaderMap, body: Bytes) -> Result<Response<Bytes>, HttpError> {
        let mut request = Request::post(url)
            .body(Full::new(body))
            .map_err(|source| HttpError::Request {
                url: url.to_owned(),
                source,
            })?;

        *request.headers_mut() = headers;
        self.send(request).await
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// [`HttpError::Transport`].
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri().clone();
        let answered = self.inner.request(request).await;
        let response = answered.map_err(|error| transport(&uri, error))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| transport(&uri, error))?;

        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// GETs `url` once; `Err` says why the answer is not 200.
///
/// # Errors
/// A sentence for the error message of a readiness probe.
pub async fn expect_ok(url: &str) -> Result<(), String> {
    let request = Request::get(url)
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let response = LoopbackClient::default()
        .send(request)
        .await
        .map_err(|error| error.to_string())?;
    match response.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{url} answers {status}")),
    }
}

fn transport(uri: &Uri, error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::Transport {
        url: uri.to_string(),
        reason: format!("{:#}", anyhow::Error::new(error)),
    }
}
