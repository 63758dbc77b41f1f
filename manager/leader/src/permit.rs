//! The permit to write, checked at the moment of each write.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::not_leader::NotLeader;
use crate::suspend_clock::SuspendClock;

/// A further limit of a permit, which the holder of another lease sets: when it is closed, no write begins, and a write in
/// flight may last until `ends`. It can be opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    pub is_open: bool,
    /// `None`: only the lease itself limits the permit.
    pub ends: Option<Instant>,
}

impl Fence {
    pub const OPEN: Self = Self {
        is_open: true,
        ends: None,
    };

    fn has_ended(self) -> bool {
        self.ended_before(Duration::ZERO)
    }

    /// Whether it ended at least so long ago.
    fn ended_before(self, time: Duration) -> bool {
        self.ends.is_some_and(|end| end + time <= Instant::now())
    }

    fn permits(self) -> bool {
        self.is_open && !self.has_ended()
    }
}

/// How long the answer to a write is awaited that was sent before the fence ended. A write whose answer is known does not keep
/// the lease. AWS answers most writes within a second.
pub const ANSWER: Duration = Duration::from_secs(2);

/// A permit to write that expires.
///
/// A lease is not a fence: a process that was paused and continued still believes that it is the leader. So every write
/// checks the permit first, which compares a monotonic clock with the renew deadline, counted from the start of the last
/// successful renewal. The time in which the machine was suspended counts, too.
#[derive(Debug, Clone)]
pub struct Permit {
    deadline: Option<watch::Receiver<Option<Deadline>>>,
    fence: watch::Receiver<Fence>,
    state: Arc<State>,
}

/// The lease holder's side of a [`Permit`]: extends it at each renewal, and revokes it.
#[derive(Debug, Clone)]
pub struct Grantor {
    deadline: watch::Sender<Option<Deadline>>,
    state: Arc<State>,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    /// By a clock that stands still while the machine is suspended.
    at: Instant,
    /// The total time in suspension from which on further suspension shortens the time.
    suspended: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// No write may begin; writes in flight may end.
    closed: AtomicBool,
    /// No write may continue.
    revoked: AtomicBool,
    /// Changes when the permit is closed or revoked.
    closing: watch::Sender<()>,
    writes: watch::Sender<usize>,
    /// When a write last ended with an unknown outcome.
    unanswered: Mutex<Option<Instant>>,
    clock: SuspendClock,
}

impl State {
    fn unanswered(&self) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Counts a write in flight, and records one that may have been sent and whose future was dropped before it was answered.
struct InFlight<'a> {
    state: &'a State,
    /// It may have been sent, and has no answer.
    is_unanswered: bool,
}

impl<'a> InFlight<'a> {
    /// Counts the write before it checks the permit: a permit that is closed and has no write in flight then never has one
    /// again.
    fn begin(permit: &'a Permit) -> Result<Self, NotLeader> {
        permit.state.writes.send_modify(|count| *count += 1);
        let this = Self {
            state: &permit.state,
            is_unanswered: false,
        };

        permit.check()?;
        Ok(this)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.is_unanswered {
            self.state.unanswered();
        }
        self.state.writes.send_modify(|count| *count -= 1);
    }
}

impl Permit {
    /// A permit without a lease behind it, for a process that runs with `--leader-elect=false`.
    #[must_use]
    pub fn always() -> Self {
        Self {
            deadline: None,
            fence: watch::channel(Fence::OPEN).1,
            state: Arc::default(),
        }
    }

    /// A permit that is void until its [`Grantor`] extends it.
    #[must_use]
    pub fn pair() -> (Grantor, Self) {
        Self::pair_by(SuspendClock::default())
    }

    fn pair_by(clock: SuspendClock) -> (Grantor, Self) {
        let (deadline, rx) = watch::channel(None);
        let state = Arc::new(State {
            clock,
            ..State::default()
        });
        let permit = Self {
            deadline: Some(rx),
            fence: watch::channel(Fence::OPEN).1,
            state: Arc::clone(&state),
        };
        (Grantor { deadline, state }, permit)
    }

    /// The permit with a fence.
    #[must_use]
    pub fn within(self, fence: watch::Receiver<Fence>) -> Self {
        Self { fence, ..self }
    }

    /// Whether a write may be sent now.
    ///
    /// # Errors
    /// [`NotLeader`] when the lease was lost, released or is about to be, or its renew deadline has passed.
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.is_closed() || !self.fence().permits() {
            return Err(NotLeader);
        }
        Ok(())
    }

    /// No write may begin any more.
    fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::SeqCst) || self.is_void()
    }

    fn fence(&self) -> Fence {
        *self.fence.borrow()
    }

    /// Waits while the fence is closed. A pause of the fence is short, so a write waits for its end instead of failing.
    async fn fence_opens(&self) -> Result<(), NotLeader> {
        let (mut fence, Some(mut deadline)) = (self.fence.clone(), self.deadline.clone()) else {
            return Ok(());
        };
        let mut closing = self.state.closing.subscribe();
        loop {
            if self.is_closed() {
                return Err(NotLeader);
            }
            if fence.borrow_and_update().permits() {
                return Ok(());
            }

            let ends = deadline.borrow_and_update().map(|deadline| deadline.at);
            tokio::select! {
                changed = fence.changed() => changed.map_err(|_| NotLeader)?,
                changed = deadline.changed() => changed.map_err(|_| NotLeader)?,
                _ = closing.changed() => {}
                () = sleep_until(ends.unwrap_or_else(Instant::now)) => {}
            }
        }
    }

    /// Sends a write and waits for its answer, as long as the permit lasts.
    ///
    /// A client may retry a request after a backoff in which the permit can end: the process is paused and continued, or
    /// another process acquires the lease. So the permit is checked before `call` begins and before each step of it. While
    /// the fence is closed, `call` waits.
    ///
    /// # Errors
    /// [`NotLeader`] when the permit is void. `call` was then not begun, or was cut off and may have taken effect.
    pub async fn guard<T>(&self, call: impl Future<Output = T>) -> Result<T, NotLeader> {
        self.guarded(call, || false, Duration::ZERO).await
    }

    /// As [`Self::guard`], for a call that itself asks [`Self::may_continue`] before each send. After the end of the fence its
    /// answer is awaited for [`ANSWER`]. `is_unsent` says after each step whether the call is known not to have been sent; a
    /// call that is cut off then has not taken effect.
    ///
    /// # Errors
    /// As [`Self::guard`].
    pub async fn guard_sends<T>(
        &self,
        call: impl Future<Output = T>,
        is_unsent: impl Fn() -> bool,
    ) -> Result<T, NotLeader> {
        self.guarded(call, is_unsent, ANSWER).await
    }

    /// Whether a write that has begun may be sent, or sent once more.
    #[must_use]
    pub fn may_continue(&self) -> bool {
        !self.is_void() && !self.fence().has_ended()
    }

    async fn guarded<T>(
        &self,
        call: impl Future<Output = T>,
        is_unsent: impl Fn() -> bool,
        answer: Duration,
    ) -> Result<T, NotLeader> {
        let mut in_flight = loop {
            self.fence_opens().await?;
            // It may close between both.
            match InFlight::begin(self) {
                Err(NotLeader) if !self.is_closed() => {}
                begun => break begun?,
            }
        };
        let (mut call, mut end) = (pin!(call), pin!(self.end(answer)));
        poll_fn(|context| {
            let was_sent = in_flight.is_unanswered;
            let time = if was_sent { answer } else { Duration::ZERO };
            if self.is_void() || self.fence().ended_before(time) {
                return Poll::Ready(Err(NotLeader));
            }

            in_flight.is_unanswered = true;
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                in_flight.is_unanswered = false;
                return Poll::Ready(Ok(answer));
            }

            in_flight.is_unanswered = !is_unsent();
            end.as_mut().poll(context).map(|()| Err(NotLeader))
        })
        .await
    }

    /// Records a write with an unknown outcome, for example because of a broken connection. The lease is then not released
    /// before such a write must have ended.
    pub fn note_unanswered(&self) {
        self.state.unanswered();
    }

    /// How long ago the renew deadline passed; zero while it has not, and without a lease.
    #[must_use]
    pub fn overdue(&self) -> Duration {
        let deadline = self.deadline.as_ref().and_then(|deadline| *deadline.borrow());
        deadline.map_or(Duration::ZERO, |deadline| {
            let passed = Instant::now() + self.suspended_since(deadline);
            passed.saturating_duration_since(deadline.at)
        })
    }

    fn suspended_since(&self, deadline: Deadline) -> Duration {
        self.state.clock.total().saturating_sub(deadline.suspended)
    }

    /// The time until the renew deadline, or the end of the fence; `None` when no lease limits this permit. Time-outs of
    /// writes must be below it.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.left()?;
        let fence = self.fence().ends;
        Some(fence.map_or(left, |end| left.min(end.saturating_duration_since(Instant::now()))))
    }

    /// The time until the renew deadline.
    fn left(&self) -> Option<Duration> {
        let deadline = *self.deadline.as_ref()?.borrow();
        Some(deadline.map_or(Duration::ZERO, |deadline| {
            let left = deadline.at.saturating_duration_since(Instant::now());
            left.saturating_sub(self.suspended_since(deadline))
        }))
    }

    fn is_void(&self) -> bool {
        self.state.revoked.load(Ordering::Acquire) || self.left().is_some_and(|left| left.is_zero())
    }

    /// Waits until the permit ends, or the fence has ended for this time.
    async fn end(&self, answer: Duration) {
        let Some(mut deadline) = self.deadline.clone() else {
            return std::future::pending().await;
        };
        let mut fence = self.fence.clone();
        while !self.is_void() && !self.fence().ended_before(answer) {
            let Some(Deadline { at, .. }) = *deadline.borrow_and_update() else {
                return;
            };
            let fenced = fence.borrow_and_update().ends;
            tokio::select! {
                () = sleep_until(fenced.map_or(at, |end| (end + answer).min(at))) => {}
                Ok(()) = deadline.changed() => {}
                Ok(()) = fence.changed() => {}
            }
        }
    }
}

impl Grantor {
    pub fn extend(&self, deadline: Instant) {
        self.extend_since(deadline, self.state.clock.total());
    }

    /// Extends the permit to `deadline` less the time in suspension since it was `suspended` in total.
    pub(crate) fn extend_since(&self, at: Instant, suspended: Duration) {
        self.deadline.send_replace(Some(Deadline { at, suspended }));
    }

    /// Lets no further write begin, permanently. Writes in flight may end as long as the lease is renewed.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::SeqCst);
        self.state.closing.send_replace(());
    }

    /// Waits until no write is in flight. After [`Self::close`] none can begin any more.
    pub async fn without_writes(&self) {
        let mut writes = self.state.writes.subscribe();
        // It cannot fail: this grantor keeps the sender.
        let _ = writes.wait_for(|count| *count == 0).await;
    }

    /// Revokes the permit at once and permanently.
    pub fn revoke(&self) {
        self.state.revoked.store(true, Ordering::Release);
        self.deadline.send_replace(None);
    }

    /// Whether a write ended with an unknown outcome less than `time` ago: it may still be in flight.
    #[must_use]
    pub fn unanswered_within(&self, time: Duration) -> bool {
        let last = *self.state.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A permit of a minute within a fence.
    fn fenced(fence: Fence) -> (Grantor, watch::Sender<Fence>, Permit) {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + SECOND * 60);
        let (tx, rx) = watch::channel(fence);
        (grantor, tx, permit.within(rx))
    }

    fn closed_after(time: Duration) -> Fence {
        Fence {
            is_open: false,
            ends: Some(Instant::now() + time),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_the_fence_and_is_not_sent_once_the_permit_is_closed() {
        let (grantor, fence, permit) = fenced(closed_after(SECOND));
        assert_eq!(permit.check(), Err(NotLeader));
        let writing = tokio::spawn({
            let permit = permit.clone();
            async move { permit.guard(async { Instant::now() }).await }
        });
        tokio::time::sleep(SECOND * 5).await;
        assert!(!writing.is_finished());
        tokio::time::timeout(SECOND, grantor.without_writes()).await.unwrap();
        fence.send_replace(Fence::OPEN);
        let sent = writing.await.unwrap().unwrap();
        assert_eq!(sent, Instant::now(), "at once");

        fence.send_replace(closed_after(SECOND));
        let waiting = tokio::spawn(async move { permit.guard(async {}).await });
        tokio::time::sleep(SECOND * 5).await;
        assert!(!waiting.is_finished());
        grantor.close();
        assert_eq!(waiting.await.unwrap(), Err(NotLeader));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_write_ends_with_the_lease() {
        let (_grantor, _fence, permit) = fenced(closed_after(SECOND));
        let start = Instant::now();
        assert_eq!(permit.guard(async {}).await, Err(NotLeader));
        assert_eq!(start.elapsed(), SECOND * 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_flight_ends_with_the_fence_and_not_when_it_closes() {
        for (takes, answer) in [(SECOND / 2, Ok(())), (SECOND * 2, Err(NotLeader))] {
            let (grantor, fence, permit) = fenced(Fence::OPEN);
            let writing = tokio::spawn(async move { permit.guard(tokio::time::sleep(takes)).await });
            tokio::time::sleep(Duration::from_millis(1)).await;
            let closed = Instant::now();
            fence.send_replace(closed_after(SECOND));
            assert_eq!(writing.await.unwrap(), answer);
            assert!(closed.elapsed() <= SECOND);
            assert_eq!(grantor.unanswered_within(SECOND), answer.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_that_is_not_extended_ends_the_permit() {
        let (_grantor, fence, permit) = fenced(Fence {
            is_open: true,
            ends: Some(Instant::now() + SECOND * 10),
        });
        assert_eq!(permit.remaining(), Some(SECOND * 10));
        let sent = Arc::default();
        let writing = tokio::spawn({
            let (sent, permit) = (Arc::clone(&sent), permit.clone());
            async move { permit.guard(repeating(sent)).await }
        });
        tokio::time::sleep(SECOND * 5).await;
        fence.send_replace(Fence {
            is_open: true,
            ends: Some(Instant::now() + SECOND * 10),
        });
        let start = Instant::now();
        assert_eq!(writing.await.unwrap(), Err(NotLeader));
        assert_eq!(start.elapsed(), SECOND * 10);
        assert_eq!(sent.load(Ordering::Relaxed), 5);
        assert_eq!(permit.check(), Err(NotLeader));
        assert_eq!(permit.overdue(), Duration::ZERO, "the lease is held");
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_ends_at_its_deadline_without_anyone_acting() {
        let (grantor, permit) = Permit::pair();
        assert_eq!(permit.check(), Err(NotLeader));
        grantor.extend(Instant::now() + Duration::from_secs(10));
        assert_eq!(permit.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(permit.check(), Err(NotLeader));
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_permit_cannot_be_extended() {
        let (grantor, permit) = Permit::pair();
        grantor.revoke();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        assert_eq!(permit.check(), Err(NotLeader));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_suspension_counts() {
        let suspended = Arc::new(std::sync::atomic::AtomicU64::new(7));
        let clock = Arc::clone(&suspended);
        let seconds = Duration::from_secs;
        let (grantor, permit) = Permit::pair_by(SuspendClock::of(move || seconds(clock.load(Ordering::Relaxed))));
        grantor.extend(Instant::now() + seconds(10));
        assert_eq!(permit.remaining(), Some(seconds(10)), "earlier suspension is over");

        suspended.store(10, Ordering::Relaxed);
        assert_eq!((permit.remaining(), permit.check()), (Some(seconds(7)), Ok(())));
        suspended.store(67, Ordering::Relaxed);
        assert_eq!(permit.check(), Err(NotLeader));
        assert_eq!(permit.overdue(), seconds(50));

        grantor.extend_since(Instant::now() + seconds(10), seconds(7));
        assert_eq!(
            permit.check(),
            Err(NotLeader),
            "that renewal began before the suspension"
        );
        grantor.extend(Instant::now() + seconds(10));
        assert_eq!(permit.check(), Ok(()));
    }

    #[test]
    fn a_permit_without_a_lease_is_unbounded() {
        assert_eq!(Permit::always().remaining(), None);
        assert_eq!(Permit::always().check(), Ok(()));
    }

    /// The lease may run out between the check and the first step, when the process is paused there.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_not_begun_is_not_unanswered() {
        for asked_before in 0..8 {
            let asked = std::sync::atomic::AtomicU64::new(0);
            let clock = move || {
                let is_over = asked.fetch_add(1, Ordering::Relaxed) > asked_before;
                SECOND * if is_over { 100 } else { 0 }
            };
            let (grantor, permit) = Permit::pair_by(SuspendClock::of(clock));
            grantor.extend(Instant::now() + SECOND * 10);
            let mut sent = false;
            let answer = permit.guard(async { sent = true }).await;
            assert_eq!(answer.is_ok(), sent, "{asked_before}");
            assert!(!grantor.unanswered_within(Duration::MAX), "{asked_before}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_cut_off_before_it_is_sent_is_not_unanswered() {
        for is_unsent in [true, false] {
            let (grantor, fence, permit) = fenced(Fence::OPEN);
            let writing = permit.guard_sends(std::future::pending::<()>(), || is_unsent);
            let closing = async {
                tokio::time::sleep(SECOND).await;
                fence.send_replace(closed_after(Duration::ZERO));
            };
            let (answer, ()) = tokio::join!(writing, closing);
            assert_eq!(answer, Err(NotLeader));
            assert_eq!(grantor.unanswered_within(SECOND), !is_unsent);
        }
    }

    /// The write was sent a moment before. It sends nothing more by itself.
    #[tokio::test(start_paused = true)]
    async fn the_answer_of_a_sent_write_is_awaited_after_the_end_of_the_fence() {
        for (takes, is_answered) in [(SECOND, true), (ANSWER + SECOND, false)] {
            let (grantor, fence, permit) = fenced(Fence::OPEN);
            let writing = permit.guard_sends(tokio::time::sleep(takes), || false);
            let closing = async {
                tokio::task::yield_now().await;
                fence.send_replace(closed_after(Duration::ZERO));
                assert!(!permit.may_continue());
            };
            let start = Instant::now();
            let (answer, ()) = tokio::join!(writing, closing);
            assert_eq!(answer.is_ok(), is_answered);
            assert_eq!(start.elapsed(), takes.min(ANSWER));
            assert_eq!(grantor.unanswered_within(SECOND), !is_answered);
        }

        // A lease that was lost is not released, so there is nothing to wait for.
        let (grantor, _fence, permit) = fenced(Fence::OPEN);
        let start = Instant::now();
        let revoking = async {
            tokio::time::sleep(SECOND).await;
            grantor.revoke();
        };
        let (answer, ()) = tokio::join!(permit.guard_sends(tokio::time::sleep(SECOND * 2), || false), revoking);
        assert_eq!((answer, start.elapsed()), (Err(NotLeader), SECOND));
    }

    /// A client that repeats its request every 3 s and counts how often it sent it.
    async fn repeating(sent: Arc<std::sync::atomic::AtomicU32>) {
        loop {
            sent.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_stopped_and_continued_does_not_repeat_its_write() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        let sent = Arc::default();
        let writing = tokio::spawn({
            let sent = Arc::clone(&sent);
            async move { permit.guard(repeating(sent)).await }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Both the client's pause and the permit are over when the process goes on.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(writing.await.unwrap(), Err(NotLeader));
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_goes_on_over_renewals_and_is_cut_off_when_the_permit_is_revoked() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        let writing = tokio::spawn(async move { permit.guard(std::future::pending::<()>()).await });
        tokio::time::sleep(Duration::from_secs(8)).await;
        grantor.extend(Instant::now() + Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(!writing.is_finished());
        assert!(!grantor.unanswered_within(Duration::MAX));
        grantor.revoke();
        assert_eq!(writing.await.unwrap(), Err(NotLeader));
        assert!(grantor.unanswered_within(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_counts_for_the_given_time() {
        let (grantor, permit) = Permit::pair();
        let second = Duration::from_secs(1);
        assert!(!grantor.unanswered_within(second));
        permit.note_unanswered();
        assert!(grantor.unanswered_within(second));
        tokio::time::advance(second).await;
        assert!(!grantor.unanswered_within(second));
        assert!(grantor.unanswered_within(second * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_permit_lets_the_write_in_flight_end_and_no_other_begin() {
        let (grantor, permit) = Permit::pair();
        grantor.extend(Instant::now() + Duration::from_secs(10));
        let call = permit.clone();
        let writing = tokio::spawn(async move { call.guard(tokio::time::sleep(Duration::from_secs(2))).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        grantor.close();
        assert_eq!(permit.check(), Err(NotLeader));
        assert_eq!(permit.guard(async {}).await, Err(NotLeader));
        let (short, rest) = (Duration::from_millis(900), Duration::from_millis(200));
        assert!(tokio::time::timeout(short, grantor.without_writes()).await.is_err());
        assert!(tokio::time::timeout(rest, grantor.without_writes()).await.is_ok());
        assert_eq!(writing.await.unwrap(), Ok(()));
        assert!(!grantor.unanswered_within(Duration::MAX), "all were answered");
    }
}
