//! Accepts connections, bounds them, and lets them end well.
//!
//! ```text
//! listener ─accept─▶ over the cap? close ─▶ task: handshake (bounded) ─▶ connection::serve ─▶ end
//!                                                                         ▲ stop: finish, then abort
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Version};
use crate::metrics::{Metrics, Refused};

/// What one server gives to connections. Requests have limits of their own ([`crate::routes::RequestLimits`]).
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Connections served at once; one more is closed at once.
    pub connections: usize,
    /// Requests that one HTTP/2 connection may have open at once.
    pub streams: u32,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the headers of a request, and for a connection's first request to begin.
    pub header: Duration,
    /// A connection without a request for this long is ended.
    pub idle: Duration,
    /// A connection of this age is ended once its requests are answered. API servers keep connections for as long as
    /// they can, so without it a replica that joins gets no work.
    pub age: Duration,
    /// Time that open requests get when the server, or a connection, is told to end.
    pub drain: Duration,
}

/// The largest header block: what Go's servers, such as the API server, take is more; what they send is far less.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// How often a silent HTTP/2 peer is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// The pause after an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request that was open got its answer.
    Clean,
    /// Some connections were still open when their time was over, and were cut.
    Cut,
}

/// Serves `router` over TLS until `stop`, then takes no more connections and gives the open ones
/// [`ConnectionLimits::drain`] to finish.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    limits: ConnectionLimits,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Drained {
    let tasks = TaskTracker::new();
    // Beneath `stop`: at the end of the drain what is left is cut with it.
    let abort = CancellationToken::new();
    let door = Door {
        acceptor: TlsAcceptor::from(tls),
        slots: Arc::new(Semaphore::new(limits.connections)),
        http: Http::new(&limits, &tasks),
        router,
        limits: limits.clone(),
        metrics,
        stop: stop.clone(),
        abort: abort.clone(),
    };
    let door = Arc::new(door);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => door.admit(stream, &tasks),
            Err(error) => pause_after(&error).await,
        }
    }
    drop(listener);
    tasks.close();
    if timeout(limits.drain, tasks.wait()).await.is_ok() {
        return Drained::Clean;
    }
    tracing::warn!(open = tasks.len(), "cutting connections that did not end in time");
    abort.cancel();
    tasks.wait().await;
    Drained::Cut
}

async fn pause_after(error: &io::Error) {
    // A peer that gave up before it was accepted is its own affair; anything else will come again at once.
    if !matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    ) {
        tracing::error!(%error, "cannot accept connections; is the limit of open files reached?");
        sleep(ACCEPT_PAUSE).await;
    }
}

struct Door {
    acceptor: TlsAcceptor,
    slots: Arc<Semaphore>,
    http: Http,
    router: Router,
    limits: ConnectionLimits,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Door {
    fn admit(self: &Arc<Self>, stream: TcpStream, tasks: &TaskTracker) {
        // Closing at once tells the API server to apply the failure policy now; waiting would use up its time-out.
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.metrics.refused(Refused::TooManyConnections);
            return;
        };
        let door = Arc::clone(self);
        tasks.spawn(async move {
            let abort = door.abort.clone();
            abort.run_until_cancelled(door.serve(stream, slot)).await;
        });
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, _slot: OwnedSemaphorePermit) {
        let _open = self.metrics.connection();
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let handshake = timeout(self.limits.handshake, self.acceptor.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            None => return,
            Some(Err(_)) => return self.metrics.refused(Refused::HandshakeTimeout),
            Some(Ok(Err(error))) => {
                // Port scans and probes end here too, so this is no error of ours.
                tracing::debug!(%error, "TLS handshake failed");
                return self.metrics.refused(Refused::HandshakeFailed);
            }
            Some(Ok(Ok(stream))) => stream,
        };
        let version = Version::negotiated(stream.get_ref().1.alpn_protocol());
        connection::serve(
            stream,
            self.http.builder(version),
            self.router.clone(),
            &self.limits,
            &self.stop,
        )
        .await;
    }
}

/// One builder per protocol: ALPN has already told which it is, so no connection is kept waiting for its first bytes.
struct Http {
    one: Builder<Tracked>,
    two: Builder<Tracked>,
}

impl Http {
    fn new(limits: &ConnectionLimits, tasks: &TaskTracker) -> Self {
        let mut builder = Builder::new(Tracked(tasks.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header)
            .max_buf_size(MAX_HEADER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(MAX_HEADER_BYTES.try_into().unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(100)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1);
        Self {
            one: builder.clone().http1_only(),
            two: builder.http2_only(),
        }
    }

    const fn builder(&self, version: Version) -> &Builder<Tracked> {
        match version {
            Version::One => &self.one,
            Version::Two => &self.two,
        }
    }
}

/// Runs the tasks of HTTP/2 streams where the drain waits for them.
#[derive(Debug, Clone)]
pub(crate) struct Tracked(TaskTracker);

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
