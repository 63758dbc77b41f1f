//! One connection from its first byte to its end.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::server::{ConnectionLimits, Tracked};

/// Which HTTP the TLS handshake agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

impl Version {
    pub(crate) fn negotiated(protocol: Option<&[u8]>) -> Self {
        if protocol == Some(b"h2") { Self::Two } else { Self::One }
    }
}

/// Serves requests until the peer or a limit ends the connection, or `stop` does. The caller cuts it by dropping.
pub(crate) async fn serve<S>(
    stream: S,
    http: &Builder<Tracked>,
    router: Router,
    limits: &ConnectionLimits,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let activity = Arc::new(Activity::new(Instant::now()));
    let watched = Arc::clone(&activity);
    let service = service_fn(move |request| answer(router.clone(), request, Arc::clone(&watched)));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let reason = loop {
        let now = Instant::now();
        let verdict = activity.verdict(limits, now);
        let Verdict::Wait(until) = verdict else { break "limit" };
        tokio::select! {
            ended = connection.as_mut() => return log(ended),
            () = stop.cancelled() => break "shutdown",
            () = sleep_until(until) => {}
        }
    };
    tracing::trace!(reason, "ending a connection");
    connection.as_mut().graceful_shutdown();
    // A shutdown of the server has its own clock, which cuts all connections; this one is for a peer that will not go.
    tokio::select! {
        ended = connection => log(ended),
        () = sleep_until(Instant::now() + limits.drain) => {}
    }
}

fn log(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    activity: Arc<Activity>,
) -> Result<Response, std::convert::Infallible> {
    let _open = activity.begin();
    router.oneshot(request.map(Body::new)).await
}

/// What a connection has been doing, so that one that does nothing can be told from one that works.
#[derive(Debug)]
struct Activity(Mutex<Counts>);

#[derive(Debug, Clone, Copy)]
struct Counts {
    born: Instant,
    last: Instant,
    open: usize,
    begun: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Wait(Instant),
    End,
}

impl Activity {
    const fn new(now: Instant) -> Self {
        Self(Mutex::new(Counts {
            born: now,
            last: now,
            open: 0,
            begun: 0,
        }))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(self: Arc<Self>) -> OpenRequest {
        self.with(|counts| {
            counts.open += 1;
            counts.begun += 1;
        });
        OpenRequest(self)
    }

    fn verdict(&self, limits: &ConnectionLimits, now: Instant) -> Verdict {
        self.with(|counts| counts.verdict(limits, now))
    }
}

impl Counts {
    /// When to look again, or that the connection's time is over.
    fn verdict(&self, limits: &ConnectionLimits, now: Instant) -> Verdict {
        let old = self.born + limits.age;
        let quiet = if self.begun == 0 {
            self.born + limits.header
        } else {
            self.last + limits.idle
        };
        let end = if self.open > 0 { old } else { old.min(quiet) };
        if now >= end {
            return Verdict::End;
        }
        // A request that begins or ends moves the deadline later, never earlier, except that the last open request
        // ending starts the idle time; looking once per idle time is exact enough for that.
        Verdict::Wait(end.min(now + limits.idle.max(Duration::from_millis(1))))
    }
}

struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.with(|counts| {
            counts.open -= 1;
            counts.last = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ConnectionLimits {
        ConnectionLimits {
            connections: 1,
            streams: 1,
            handshake: Duration::from_secs(1),
            header: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            age: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }

    fn at(born: Instant, seconds: u64) -> Instant {
        born + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_asks_ends_after_the_header_time() {
        let born = Instant::now();
        let activity = Activity::new(born);
        assert_eq!(activity.verdict(&limits(), at(born, 4)), Verdict::Wait(at(born, 5)));
        assert_eq!(activity.verdict(&limits(), at(born, 5)), Verdict::End);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_request() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let open = Arc::clone(&activity).begin();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_ne!(activity.verdict(&limits(), Instant::now()), Verdict::End);
        drop(open);
        let answered = Instant::now();
        assert_eq!(
            activity.verdict(&limits(), at(answered, 59)),
            Verdict::Wait(at(answered, 60))
        );
        assert_eq!(activity.verdict(&limits(), at(answered, 60)), Verdict::End);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_ends_even_when_it_is_busy() {
        let born = Instant::now();
        let activity = Arc::new(Activity::new(born));
        let _open = Arc::clone(&activity).begin();
        assert_ne!(activity.verdict(&limits(), at(born, 599)), Verdict::End);
        assert_eq!(activity.verdict(&limits(), at(born, 600)), Verdict::End);
    }

    #[test]
    fn only_a_negotiated_h2_is_http_two() {
        assert_eq!(Version::negotiated(Some(b"h2")), Version::Two);
        assert_eq!(Version::negotiated(Some(b"http/1.1")), Version::One);
        assert_eq!(Version::negotiated(None), Version::One);
    }
}
