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
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::frames::Frames;
use crate::server::Tracked;
use crate::slots::Place;
use crate::{ConnectionLimits, Ended, PeerCertificates, Source};

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

/// A connection after its handshake.
pub(crate) struct Connection<S> {
    pub(crate) stream: S,
    pub(crate) version: Version,
    pub(crate) peer: Option<PeerCertificates>,
    pub(crate) source: Source,
    pub(crate) place: Place,
    pub(crate) limits: ConnectionLimits,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Connection<S> {
    /// Serves requests until the peer or a limit ends the connection, or `stop` does. The caller ends it at once by
    /// dropping.
    pub(crate) async fn serve(self, http: &Builder<Tracked>, router: Router, stop: &CancellationToken) -> Ended {
        let (limits, peer, source) = (self.limits, self.peer, self.source);
        let activity = Arc::new(Activity::new(Instant::now(), self.version, self.place));
        let watched = Arc::clone(&activity);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(source);
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            answer(router.clone(), request, Arc::clone(&watched), limits.age)
        });
        let flood = Arc::clone(&activity);
        // HTTP/1.1 has no control frames: its bytes are not read as such.
        let stream = match self.version {
            Version::One => Frames::unread(self.stream),
            Version::Two => Frames::new(self.stream, move || flood.flooded.notify_one()),
        };
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));

        let reason = loop {
            let now = Instant::now();
            let until = match activity.verdict(&limits, now) {
                Verdict::Wait(until) => until,
                Verdict::End(reason) => break reason,
            };
            tokio::select! {
                ended = connection.as_mut() => return activity.ended(log(ended)),
                // Ended at once: the peer has shown that it does not wait for answers.
                () = activity.flooded.notified() => return Ended::Flood,
                () = stop.cancelled() => break Ended::Shutdown,
                () = sleep_until(until) => {}
            }
        };

        tracing::trace!(?reason, "ending a connection");
        // A peer that sent no complete headers waits for no answer, so nothing is left to drain.
        if reason == Ended::Quiet && activity.has_no_request() {
            return reason;
        }
        // GOAWAY on HTTP/2; on HTTP/1.1 the end after the answer that is under way.
        connection.as_mut().graceful_shutdown();
        // A shutdown of the server has its own clock, which ends all connections and reports it; this one is for a peer that
        // does not leave.
        let is_late = async {
            if reason == Ended::Shutdown {
                std::future::pending::<()>().await;
            }
            sleep_until(Instant::now() + limits.drain).await;
        };
        tokio::select! {
            ended = connection => { log(ended); }
            () = is_late => {}
        }

        reason
    }
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
    age: Duration,
) -> Result<Response, std::convert::Infallible> {
    let mut open = activity.begin();
    let mut answer = router.oneshot(request.map(Body::new)).await;
    if let (Ok(answer), true) = (&mut answer, open.activity.is_last(age)) {
        answer
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    open.answered = answer
        .as_ref()
        .is_ok_and(|answer| answer.extensions().get::<Aborted>().is_none());
    answer
}

/// An extension of the answer to a request that its caller aborted: nobody reads the answer.
#[derive(Debug, Clone, Copy)]
pub struct Aborted;

/// Requests that a caller may abort beyond as many as were answered. An API server aborts a request when its own caller
/// has gone; streams opened and reset without end keep a server busy for nothing (CVE-2023-44487,
/// <https://nvd.nist.gov/vuln/detail/CVE-2023-44487>).
const MAY_ABORT: u64 = 100;

/// The requests of a connection, which tell when it ends.
#[derive(Debug)]
struct Activity {
    counts: Mutex<Counts>,
    flooded: Notify,
    version: Version,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    born: Instant,
    last: Instant,
    open: usize,
    begun: u64,
    answered: u64,
    /// The last answer said `Connection: close`.
    is_closing: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Wait(Instant),
    End(Ended),
}

impl Activity {
    const fn new(now: Instant, version: Version, place: Place) -> Self {
        Self {
            version,
            place,
            counts: Mutex::new(Counts {
                born: now,
                last: now,
                open: 0,
                begun: 0,
                answered: 0,
                is_closing: false,
            }),
            flooded: Notify::const_new(),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        act(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(self: Arc<Self>) -> OpenRequest {
        self.with(|counts| {
            if counts.open == 0 {
                self.place.busy();
            }
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
            if counts.open == 0 {
                self.place.idle();
            }
            counts.is_flood()
        });
        if flooded {
            self.flooded.notify_one();
        }
    }

    fn verdict(&self, limits: &ConnectionLimits, now: Instant) -> Verdict {
        self.with(|counts| counts.verdict(limits, self.version, now))
    }

    /// Whether no request began on it.
    fn has_no_request(&self) -> bool {
        self.with(|counts| counts.begun == 0)
    }

    /// Whether the answer that is under way is the last one, because the connection is old.
    fn is_last(&self, age: Duration) -> bool {
        self.with(|counts| {
            counts.is_closing = self.version == Version::One && Instant::now() >= counts.born + age;
            counts.is_closing
        })
    }

    fn ended(&self, reason: Ended) -> Ended {
        let is_aged = reason == Ended::Peer && self.with(|counts| counts.is_closing);
        if is_aged { Ended::Age } else { reason }
    }
}

impl Counts {
    /// Whether far more requests were aborted than answered.
    const fn is_flood(&self) -> bool {
        let aborted = self.begun - self.answered - self.open as u64;
        aborted > MAY_ABORT + self.answered
    }

    /// When to check again, or that the connection's time is over.
    fn verdict(&self, limits: &ConnectionLimits, version: Version, now: Instant) -> Verdict {
        let old = self.born + limits.age;
        let quiet = if self.begun == 0 {
            self.born + limits.header
        } else {
            self.last + limits.idle
        };
        // An idle HTTP/1.1 connection ends with the answer to its next request: a request that was sent when the
        // connection closes fails, because HTTP has no GOAWAY before version 2 and Go repeats no POST
        // (<https://pkg.go.dev/net/http#Transport>).
        let waits = version == Version::One && self.open == 0;
        if now >= old && !waits {
            return Verdict::End(Ended::Age);
        }
        if self.open == 0 && now >= quiet {
            return Verdict::End(Ended::Quiet);
        }

        let end = match (self.open, waits) {
            (1.., _) => old,
            (0, true) => quiet,
            (0, false) => old.min(quiet),
        };
        // A request that begins or ends moves the deadline later, never earlier, except that the last open request
        // ending starts the idle time; a check once per idle time is exact enough for that.
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
    use crate::WhenFull;
    use crate::slots::{Caller, Slot, Slots};

    fn limits() -> ConnectionLimits {
        crate::slots::tests::limits(WhenFull::EndIdle)
    }

    /// Of a connection with a slot of its own.
    fn activity(now: Instant) -> (Slot, Activity) {
        let caller = Caller::of("127.0.0.1:1".parse().unwrap(), None);
        let slot = Slots::new(limits()).take(caller).unwrap();
        let activity = Activity::new(now, Version::Two, slot.place().clone());
        (slot, activity)
    }

    fn at(born: Instant, seconds: u64) -> Instant {
        born + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_asks_ends_after_the_header_time() {
        let born = Instant::now();
        let (_slot, activity) = activity(born);
        assert_eq!(activity.verdict(&limits(), at(born, 4)), Verdict::Wait(at(born, 5)));
        assert_eq!(activity.verdict(&limits(), at(born, 5)), Verdict::End(Ended::Quiet));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_request() {
        let (_slot, activity) = activity(Instant::now());
        let activity = Arc::new(activity);
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
        let (_slot, activity) = activity(born);
        let activity = Arc::new(activity);
        let _open = Arc::clone(&activity).begin();
        assert!(matches!(activity.verdict(&limits(), at(born, 599)), Verdict::Wait(_)));
        assert_eq!(activity.verdict(&limits(), at(born, 600)), Verdict::End(Ended::Age));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_idle_connection_ends_by_goaway_or_with_the_next_answer() {
        let born = Instant::now();
        for (version, begun, wanted) in [
            (Version::One, 1, Verdict::Wait(at(born, 660))),
            (Version::Two, 1, Verdict::End(Ended::Age)),
            (Version::One, 0, Verdict::End(Ended::Quiet)),
        ] {
            let (_slot, mut activity) = activity(born);
            activity.version = version;
            activity.with(|counts| (counts.begun, counts.last) = (begun, at(born, 600)));
            assert_eq!(activity.verdict(&limits(), at(born, 600)), wanted);
            assert!(!activity.is_last(limits().age));
        }
        let (_slot, mut old) = activity(born);
        old.version = Version::One;
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(old.is_last(limits().age));
        assert_eq!(old.ended(Ended::Peer), Ended::Age);
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_requests_are_a_flood_when_they_are_far_more_than_those_answered() {
        let (_slot, activity) = activity(Instant::now());
        let activity = Arc::new(activity);
        let answer = || Arc::clone(&activity).begin().answered = true;
        let abort = || drop(Arc::clone(&activity).begin());
        let is_flood = || activity.with(|counts| counts.is_flood());
        (0..10).for_each(|_| answer());
        (0..MAY_ABORT + 10).for_each(|_| abort());
        let open = Arc::clone(&activity).begin();
        assert!(!is_flood());
        abort();
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
