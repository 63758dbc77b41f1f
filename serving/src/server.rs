//! Accepts connections, limits them, and ends them in good order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{Connection, Version};
use crate::slots::{Caller, Place, Slot, Slots};
use crate::{ConnectionLimits, Observer, PeerCertificates, Refused, Source};

/// The largest header block. hyper's own limit for HTTP/2 is the same; API servers and kubelets send far less.
/// <https://docs.rs/hyper/latest/hyper/server/conn/http2/struct.Builder.html#method.max_header_list_size>
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Interval of HTTP/2 pings to an idle peer, and the timeout of an answer.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// Backoff after accept failed for lack of file descriptors or memory: the next accept would fail immediately, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request that was open got its answer.
    Clean,
    /// Some connections were still open at the deadline, and were ended.
    Cut,
}

#[derive(Debug)]
pub struct Server {
    /// Certificate, versions and protocols; `None` serves plain HTTP/1.1.
    pub tls: Option<Arc<ServerConfig>>,
    pub router: Router,
    pub limits: ConnectionLimits,
    pub observer: Arc<dyn Observer>,
}

impl Server {
    /// Serves until `stop`, then takes no more connections and gives the open ones [`ConnectionLimits::drain`] to
    /// finish.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Drained {
        let tasks = TaskTracker::new();
        // Ends the connections that are left at the end of the drain.
        let abort = CancellationToken::new();
        let acceptor = Arc::new(Acceptor {
            tls: self.tls.map(TlsAcceptor::from),
            slots: Slots::new(self.limits),
            http: Http::new(&self.limits, &tasks),
            router: self.router,
            limits: self.limits,
            observer: self.observer,
            stop: stop.clone(),
            abort: abort.clone(),
        });

        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => acceptor.admit(stream, peer, &tasks),
                Err(error) => pause_after(&error).await,
            }
        }

        drop(listener);
        tasks.close();
        if timeout(acceptor.limits.drain, tasks.wait()).await.is_ok() {
            return Drained::Clean;
        }

        tracing::warn!(
            open = tasks.len(),
            "ending connections whose requests were not answered in time"
        );
        abort.cancel();
        tasks.wait().await;

        Drained::Cut
    }
}

async fn pause_after(error: &io::Error) {
    // A peer that gave up before it was accepted needs no pause; any other error repeats at once.
    if !matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    ) {
        tracing::error!(%error, "cannot accept connections; is the limit of open files reached?");
        sleep(ACCEPT_PAUSE).await;
    }
}

struct Acceptor {
    tls: Option<TlsAcceptor>,
    slots: Arc<Slots>,
    http: Http,
    router: Router,
    limits: ConnectionLimits,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Acceptor {
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, tasks: &TaskTracker) {
        // Closing at once tells the caller now; waiting would use up its timeout.
        let Some(slot) = self.slots.take(Caller::of(peer, stream.local_addr().ok())) else {
            self.observer.refused(Refused::TooManyConnections);
            return;
        };

        let acceptor = Arc::clone(self);
        let source = Source(peer.ip().to_canonical());
        tasks.spawn(async move {
            let abort = acceptor.abort.clone();
            abort.run_until_cancelled(acceptor.hold(stream, slot, source)).await;
        });
    }

    async fn hold(self: Arc<Self>, stream: TcpStream, slot: Slot, source: Source) {
        let _open = Open::new(&self.observer);
        // In a box: each layer around a future holds it twice, and a crowd that only connects gets no further than this
        // one.
        let serving = Box::pin(self.serve(stream, slot.place(), source));
        if slot.run(serving).await.is_none() {
            self.observer.refused(Refused::TooManyConnections);
        }
    }

    async fn serve(&self, stream: TcpStream, place: &Place, source: Source) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }

        let Some(tls) = &self.tls else {
            return Box::pin(self.converse(stream, Version::One, (None, source), place)).await;
        };

        let handshake = timeout(self.limits.handshake, tls.accept(stream));
        match self.stop.run_until_cancelled(handshake).await {
            None => {}
            Some(Err(_)) => self.observer.refused(Refused::HandshakeTimeout),
            Some(Ok(Err(error))) => {
                // Port scans and probes without TLS end here too, so this is no error of ours.
                tracing::debug!(%error, "TLS handshake failed");
                self.observer.refused(refusal(&error));
            }
            Some(Ok(Ok(stream))) => {
                let session = stream.get_ref().1;
                let version = Version::negotiated(session.alpn_protocol());
                let certificates = session.peer_certificates();
                let peer = certificates
                    .map(|shown| PeerCertificates(shown.iter().map(|one| one.clone().into_owned()).collect()));
                // In a box, because it is ten times as large as the handshake, which is all that most of a crowd get
                // to.
                Box::pin(self.converse(stream, version, (peer, source), place)).await;
            }
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        stream: S,
        version: Version,
        (peer, source): (Option<PeerCertificates>, Source),
        place: &Place,
    ) {
        let age = spread(self.limits.age, place.number());
        let connection = Connection {
            stream,
            version,
            peer,
            source,
            place: place.clone(),
            limits: ConnectionLimits { age, ..self.limits },
        };
        let http = self.http.builder(version);
        let ended = connection.serve(http, self.router.clone(), &self.stop).await;
        self.observer.ended(ended);
    }
}

/// An open connection, for the observer.
struct Open<'a>(&'a Arc<dyn Observer>);

impl<'a> Open<'a> {
    fn new(observer: &'a Arc<dyn Observer>) -> Self {
        observer.opened();
        Self(observer)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// Between four fifths of `age` and `age`, in turns, so that connections that an API server opens together are not
/// closed together.
fn spread(age: Duration, number: u64) -> Duration {
    const TURNS: u32 = 8;
    let turn = u32::try_from(number % u64::from(TURNS)).unwrap_or(0);
    age - age / 5 * turn / TURNS
}

fn refusal(error: &io::Error) -> Refused {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Refused::ClientCertificate
        }
        _ => Refused::HandshakeFailed,
    }
}

/// One builder per protocol: ALPN has chosen it. A builder for both reads the first bytes of a connection without any
/// limit of time.
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
            // It begins when the connection gets idle, so it is the time for the headers of a later request as well.
            .header_read_timeout(limits.idle)
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

/// Spawns the tasks of HTTP/2 streams such that the drain waits for them.
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
