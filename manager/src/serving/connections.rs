//! Accepts connections, bounds them, and lets them end.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::callers::Peer;

/// Connections at once: probes and scrapers are few.
const CONNECTIONS: usize = 256;
/// Time for the handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for open requests at the end.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause after a failed accept: it fails again at once while the process is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    max_streams: Option<u32>,
    stop: CancellationToken,
) {
    let (tasks, abort) = (TaskTracker::new(), CancellationToken::new());
    let acceptor = TlsAcceptor::from(tls);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let connection = connection(stream, acceptor.clone(), router.clone(), max_streams, stop.clone());
        let abort = abort.clone();
        tasks.spawn(async move {
            abort.run_until_cancelled(connection).await;
            drop(slot);
        });
    }
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        abort.cancel();
        tasks.wait().await;
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    max_streams: Option<u32>,
    stop: CancellationToken,
) {
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let router = match stream.get_ref().1.peer_certificates() {
        Some(shown) => {
            let peer = Peer(shown.iter().map(|one| one.clone().into_owned()).collect());
            router.layer(Extension(peer))
        }
        None => router,
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(max_streams.unwrap_or(100))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(10));
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended badly");
    }
}
