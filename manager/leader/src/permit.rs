//! The right to write, checked at the moment of writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Says that this process may not write now. The write must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the lease that guards this write, or too little of it is left")]
pub struct NotLeader;

/// A right to write that ends by itself.
///
/// A lease is not a fence: a process that was stopped and continued still believes what it believed. So every
/// write asks here first, and the answer compares a monotonic clock with the renew deadline, counted from the
/// start of the last good renewal.
#[derive(Debug, Clone)]
pub struct Permit {
    deadline: Option<watch::Receiver<Option<Instant>>>,
    revoked: Arc<AtomicBool>,
}

/// The lease holder's end of a [`Permit`]: extends it at each renewal and takes it away.
#[derive(Debug)]
pub struct Grantor {
    deadline: watch::Sender<Option<Instant>>,
    revoked: Arc<AtomicBool>,
}

impl Permit {
    /// A permit without a lease behind it, for a process that runs with `--leader-elect=false`.
    #[must_use]
    pub fn always() -> Self {
        Self {
            deadline: None,
            revoked: Arc::new(AtomicBool::new(false)),
        }
    }

    /// A permit that is void until its [`Grantor`] extends it.
    #[must_use]
    pub fn pair() -> (Grantor, Self) {
        let (tx, rx) = watch::channel(None);
        let revoked = Arc::new(AtomicBool::new(false));
        (
            Grantor {
                deadline: tx,
                revoked: Arc::clone(&revoked),
            },
            Self {
                deadline: Some(rx),
                revoked,
            },
        )
    }

    /// Whether a write may be sent now.
    ///
    /// # Errors
    /// [`NotLeader`] when the lease was lost, released, or its renew deadline has passed.
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.revoked.load(Ordering::Acquire) {
            return Err(NotLeader);
        }
        match self.remaining() {
            None => Ok(()),
            Some(left) if left > Duration::ZERO => Ok(()),
            Some(_) => Err(NotLeader),
        }
    }

    /// How long ago the renew deadline passed; zero while it has not, and without a lease.
    #[must_use]
    pub fn overdue(&self) -> Duration {
        let deadline = self.deadline.as_ref().and_then(|deadline| *deadline.borrow());
        deadline.map_or(Duration::ZERO, |at| Instant::now().saturating_duration_since(at))
    }

    /// The time until the renew deadline; `None` when no lease bounds this permit. Give writes a time-out
    /// below it.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline.as_ref()?;
        let now = Instant::now();
        Some(
            deadline
                .borrow()
                .map_or(Duration::ZERO, |at| at.saturating_duration_since(now)),
        )
    }
}

impl Grantor {
    /// Lets writes go on until `deadline`.
    pub fn extend(&self, deadline: Instant) {
        self.deadline.send_replace(Some(deadline));
    }

    /// Ends the permit at once and for good.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.deadline.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_permit_without_a_lease_is_unbounded() {
        assert_eq!(Permit::always().remaining(), None);
        assert_eq!(Permit::always().check(), Ok(()));
    }
}
