//! Connects to a destination directly or through a proxy.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::Matcher;
use rustls::ClientConfig;
use tower::{Service, ServiceExt};

use crate::proxy::Path;
use crate::{Proxies, tcp};

/// A proxy, and what it demands in the header `Proxy-Authorization`.
#[derive(Clone)]
struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// `None` for what is not a URL; [`Proxies`] has only URLs.
    fn of(url: &str) -> Option<Self> {
        let matcher = Matcher::builder().all(url).build();
        let proxy = matcher.intercept(&Uri::from_static("http://any.invalid"))?;
        Some(Self {
            uri: proxy.uri().clone(),
            authorization: proxy.basic_auth().cloned(),
        })
    }
}

/// How the destinations are reached.
pub(super) struct Paths {
    proxies: Proxies,
    http_proxy: Option<Proxy>,
    https_proxy: Option<Proxy>,
    tls: Arc<ClientConfig>,
    /// To a destination, or to a proxy.
    direct: HttpsConnector<tcp::Connector>,
}

impl Paths {
    pub(super) fn new(proxies: &Proxies, tcp: tcp::Connector, tls: Arc<ClientConfig>) -> Self {
        Self {
            proxies: proxies.clone(),
            http_proxy: proxies.http.as_deref().and_then(Proxy::of),
            https_proxy: proxies.https.as_deref().and_then(Proxy::of),
            direct: HttpsConnector::from((tcp, Arc::clone(&tls))),
            tls,
        }
    }

    /// The header `Proxy-Authorization` of a request to `uri`. Through a tunnel, only the tunnel has one.
    pub(super) fn authorization(&self, uri: &Uri) -> Option<&HeaderValue> {
        match self.proxies.path(&uri.to_string()) {
            Path::HttpProxy => self.http_proxy.as_ref()?.authorization.as_ref(),
            Path::Direct | Path::HttpsProxy => None,
        }
    }

    async fn connect(&self, to: Uri) -> Result<Stream, BoxError> {
        let direct = self.direct.clone();
        let path = (self.proxies.path(&to.to_string()), &self.http_proxy, &self.https_proxy);
        let to_http_proxy = matches!(path, (Path::HttpProxy, Some(_), _));
        let io: Box<dyn Io> = match path {
            (Path::HttpProxy, Some(proxy), _) => Box::new(direct.oneshot(proxy.uri.clone()).await?),
            (Path::HttpsProxy, _, Some(proxy)) => {
                let mut tunnel = Tunnel::new(proxy.uri.clone(), direct);
                if let Some(authorization) = &proxy.authorization {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                let through_tunnel = HttpsConnector::from((tunnel, Arc::clone(&self.tls)));
                Box::new(through_tunnel.oneshot(to).await?)
            }
            _ => Box::new(direct.oneshot(to).await?),
        };

        Ok(Stream { io, to_http_proxy })
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

/// Connects within a time limit, name resolution and TLS included.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) paths: Arc<Paths>,
    pub(super) timeout: Option<Duration>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Self { paths, timeout } = self.clone();
        Box::pin(async move { within("HTTP connect", timeout, paths.connect(to)).await })
    }
}

trait Io: Read + Write + Connection + Send + Unpin {}

impl<T: Read + Write + Connection + Send + Unpin> Io for T {}

/// A connection of any kind.
pub(super) struct Stream {
    io: Box<dyn Io>,
    /// To a proxy that reads the whole URL of each request.
    to_http_proxy: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.to_http_proxy)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{part} timeout occurred after {after:?}")]
pub(super) struct TimedOut {
    part: &'static str,
    after: Duration,
}

/// Runs `future`, a part of a request, for at most `limit`.
pub(super) async fn within<T, E: Into<BoxError>>(
    part: &'static str,
    limit: Option<Duration>,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    let Some(after) = limit else {
        return future.await.map_err(Into::into);
    };

    match tokio::time::timeout(after, future).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(TimedOut { part, after }.into()),
    }
}
