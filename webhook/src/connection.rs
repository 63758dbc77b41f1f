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
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::metrics::Ended;
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
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let activity = Arc::new(Activity::new(Instant::now()));
    let watched = Arc::clone(&activity);
    let service = service_fn(move |request| answer(router.clone(), request, Arc::clone(&watched)));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let reason = loop {
        let now = Instant::now();
        let verdict = activity.verdict(limits, now);
        let until = match verdict {
            Verdict::Wait(until) => until,
            Verdict::End(reason) => break reason,
        };
        tokio::select! {
            ended = connection.as_mut() => return log(ended),
            // Cut, not ended politely: the other side has shown that it does not wait for answers.
            () = activity.flooded.notified() => return Ended::Flood,
            () = stop.cancelled() => break Ended::Shutdown,
            () = sleep_until(until) => {}
        }
    };
    tracing::trace!(?reason, "ending a connection");
    // GOAWAY on HTTP/2; on HTTP/1.1 the end after the answer that is under way.
    connection.as_mut().graceful_shutdown();
    // A shutdown of the server has its own clock, which cuts all connections; this one is for a peer that will not go.
    tokio::select! {
        ended = connection => { log(ended); }
        () = sleep_until(Instant::now() + limits.drain) => {}
    }
    reason
}

fn log(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> Ended {
    match ended {
        Ok(()) => Ended::Peer,
        Err(error) => {
            tracing::debug!(%error, "connection ended early");
            Ended::Error
        }
    }
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    activity: Arc<Activity>,
) -> Result<Response, std::convert::Infallible> {
    let mut open = activity.begin();
    let answer = router.oneshot(request.map(Body::new)).await;
    open.answered = answer
        .as_ref()
        .is_ok_and(|answer| answer.extensions().get::<TakenBack>().is_none());
    answer
}

/// Marks the answer to a request whose caller broke it off: nobody will read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenBack;

/// Requests that a caller may take back before their answer, beyond as many as it has let be answered. An API server takes one back
/// when its own caller has gone; to open and reset streams without end is a known way to keep a server busy for nothing.
const MAY_TAKE_BACK: u64 = 100;

/// What a connection has been doing, so that one that does nothing, or nothing good, can be told from one that works.
#[derive(Debug)]
struct Activity {
    counts: Mutex<Counts>,
    flooded: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    born: Instant,
    last: Instant,
    open: usize,
    begun: u64,
    answered: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Wait(Instant),
    End(Ended),
}

impl Activity {
    const fn new(now: Instant) -> Self {
        Self {
            counts: Mutex::new(Counts {
                born: now,
                last: now,
                open: 0,
                begun: 0,
                answered: 0,
            }),
            flooded: Notify::const_new(),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        act(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(self: Arc<Self>) -> OpenRequest {
        self.with(|counts| {
            counts.open += 1;
            counts.begun += 1;
        });
        OpenRequest {
            activity: self,
            answered: false,
        }
    }

    fn end(&self, answered: bool) {
        let flooded = self.with(|counts| {
            counts.open -= 1;
            counts.answered += u64::from(answered);
            counts.last = Instant::now();
            counts.is_flood()
        });
        if flooded {
            self.flooded.notify_one();
        }
    }

    fn verdict(&self, limits: &ConnectionLimits, now: Instant) -> Verdict {
        self.with(|counts| counts.verdict(limits, now))
    }
}

impl Counts {
    /// Whether far more requests were taken back than answered.
    const fn is_flood(&self) -> bool {
        let taken_back = self.begun - self.answered - self.open as u64;
        taken_back > MAY_TAKE_BACK + self.answered
    }

    /// When to look again, or that the connection's time is over.
    fn verdict(&self, limits: &ConnectionLimits, now: Instant) -> Verdict {
        let old = self.born + limits.age;
        let quiet = if self.begun == 0 {
            self.born + limits.header
        } else {
            self.last + limits.idle
        };
        if now >= old {
            return Verdict::End(Ended::Age);
        }
        if self.open == 0 && now >= quiet {
            return Verdict::End(Ended::Quiet);
        }
        let end = if self.open > 0 { old } else { old.min(quiet) };
        // A request that begins or ends moves the deadline later, never earlier, except that the last open request
        // ending starts the idle time; looking once per idle time is exact enough for that.
        Verdict::Wait(end.min(now + limits.idle.max(Duration::from_millis(1))))
    }
}

struct OpenRequest {
    activity: Arc<Activity>,
    answered: bool,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity.end(self.answered);
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
        assert_eq!(activity.verdict(&limits(), at(born, 5)), Verdict::End(Ended::Quiet));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_request() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let open = Arc::clone(&activity).begin();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(matches!(activity.verdict(&limits(), Instant::now()), Verdict::Wait(_)));
        drop(open);
        let answered = Instant::now();
        assert_eq!(
            activity.verdict(&limits(), at(answered, 59)),
            Verdict::Wait(at(answered, 60))
        );
        assert_eq!(
            activity.verdict(&limits(), at(answered, 60)),
            Verdict::End(Ended::Quiet)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_ends_even_when_it_is_busy() {
        let born = Instant::now();
        let activity = Arc::new(Activity::new(born));
        let _open = Arc::clone(&activity).begin();
        assert!(matches!(activity.verdict(&limits(), at(born, 599)), Verdict::Wait(_)));
        assert_eq!(activity.verdict(&limits(), at(born, 600)), Verdict::End(Ended::Age));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_taken_back_are_a_flood_when_they_are_far_more_than_those_answered() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let answer = || Arc::clone(&activity).begin().answered = true;
        let take_back = || drop(Arc::clone(&activity).begin());
        let is_flood = || activity.with(|counts| counts.is_flood());
        (0..10).for_each(|_| answer());
        (0..MAY_TAKE_BACK + 10).for_each(|_| take_back());
        let open = Arc::clone(&activity).begin();
        assert!(!is_flood());
        take_back();
        assert!(is_flood());
        tokio::time::timeout(Duration::from_secs(1), activity.flooded.notified())
            .await
            .unwrap();
        answer();
        assert!(!is_flood());
        drop(open);
    }

    #[test]
    fn only_a_negotiated_h2_is_http_two() {
        assert_eq!(Version::negotiated(Some(b"h2")), Version::Two);
        assert_eq!(Version::negotiated(Some(b"http/1.1")), Version::One);
        assert_eq!(Version::negotiated(None), Version::One);
    }
}
