//! Accepts connections, bounds them, and lets them end well.
//!
//! ```text
//! listener ─accept─▶ over the cap? close ─▶ task: handshake (bounded) ─▶ connection::serve ─▶ end
//!                                                                         ▲ stop: finish, then abort
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Version};
use crate::metrics::{Metrics, Port, Refused};

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
    /// A connection of this age, or up to a fifth less, is ended once its requests are answered. API servers keep connections for as long as
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

/// What a server serves, and how.
#[derive(Debug)]
pub struct Server {
    /// Its settings; `None` serves plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Which of the process's ports it is, for metrics.
    pub port: Port,
    /// What answers requests.
    pub router: Router,
    /// What connections get.
    pub limits: ConnectionLimits,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

impl Server {
    /// Serves until `stop`, then takes no more connections and gives the open ones [`ConnectionLimits::drain`] to finish.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Drained {
        let tasks = TaskTracker::new();
        // Beneath `stop`: at the end of the drain what is left is cut with it.
        let abort = CancellationToken::new();
        let door = Arc::new(Door {
            acceptor: self.tls.map(TlsAcceptor::from),
            port: self.port,
            slots: Arc::new(Semaphore::new(self.limits.connections)),
            http: Http::new(&self.limits, &tasks),
            router: self.router,
            limits: self.limits,
            metrics: self.metrics,
            admitted: AtomicU64::new(0),
            stop: stop.clone(),
            abort: abort.clone(),
        });
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => door.admit(stream, &tasks),
                Err(error) => pause_after(&error).await,
            }
        }
        drop(listener);
        tasks.close();
        if timeout(door.limits.drain, tasks.wait()).await.is_ok() {
            return Drained::Clean;
        }
        tracing::warn!(open = tasks.len(), "cutting connections that did not end in time");
        abort.cancel();
        tasks.wait().await;
        Drained::Cut
    }
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
    acceptor: Option<TlsAcceptor>,
    port: Port,
    slots: Arc<Semaphore>,
    http: Http,
    router: Router,
    limits: ConnectionLimits,
    metrics: Arc<Metrics>,
    admitted: AtomicU64,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Door {
    fn admit(self: &Arc<Self>, stream: TcpStream, tasks: &TaskTracker) {
        // Closing at once tells the API server to apply the failure policy now; waiting would use up its time-out.
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.metrics.refused(self.port, Refused::TooManyConnections);
            return;
        };
        let door = Arc::clone(self);
        tasks.spawn(async move {
            let abort = door.abort.clone();
            abort.run_until_cancelled(door.serve(stream, slot)).await;
        });
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, _slot: OwnedSemaphorePermit) {
        let _open = self.metrics.connection(self.port);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let Some(acceptor) = &self.acceptor else {
            return Box::pin(self.converse(stream, Version::One)).await;
        };
        let handshake = timeout(self.limits.handshake, acceptor.accept(stream));
        match self.stop.run_until_cancelled(handshake).await {
            None => {}
            Some(Err(_)) => self.metrics.refused(self.port, Refused::HandshakeTimeout),
            Some(Ok(Err(error))) => {
                // Port scans and probes end here too, so this is no error of ours.
                tracing::debug!(%error, "TLS handshake failed");
                self.metrics.refused(self.port, why(&error));
            }
            Some(Ok(Ok(stream))) => {
                let version = Version::negotiated(stream.get_ref().1.alpn_protocol());
                // In a box, because it is ten times as large as the handshake, which is all that most of a crowd get to.
                Box::pin(self.converse(stream, version)).await;
            }
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin + 'static>(&self, stream: S, version: Version) {
        let age = spread(self.limits.age, self.admitted.fetch_add(1, Ordering::Relaxed));
        let limits = ConnectionLimits {
            age,
            ..self.limits.clone()
        };
        let http = self.http.builder(version);
        let ended = connection::serve(stream, http, self.router.clone(), &limits, &self.stop).await;
        self.metrics.ended(self.port, ended);
    }
}

/// Four fifths to the whole of `age`, by turns: connections that began together, at the start of an API server, do not all
/// end together.
fn spread(age: Duration, number: u64) -> Duration {
    const TURNS: u32 = 8;
    let turn = u32::try_from(number % u64::from(TURNS)).unwrap_or(0);
    age - age / 5 * turn / TURNS
}

fn why(error: &io::Error) -> Refused {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Refused::ClientCertificate
        }
        _ => Refused::HandshakeFailed,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_begin_together_end_apart_and_never_past_their_age() {
        let age = Duration::from_secs(600);
        let ages: Vec<u64> = (0..9).map(|number| spread(age, number).as_secs()).collect();
        assert_eq!(ages, [600, 585, 570, 555, 540, 525, 510, 495, 600]);
        assert_eq!(spread(age, u64::MAX), Duration::from_secs(495));
    }
}
