//! Telling a call that waits for its flag from one that AWS is slow to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static CURRENT: WaitFlag;
}

/// Whether a call still waits for its flag, and so has not been sent. Whoever bounds the time that a call may take asks
/// this: waiting for budget may take minutes.
#[derive(Debug, Clone, Default)]
pub struct WaitFlag(Arc<AtomicBool>);

impl WaitFlag {
    /// Runs a call that tells by this whether it waits.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), call).await
    }

    /// Whether the call waits now. One that has not been polled yet, or that nobody counts, does not.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// While this lives, the running call waits.
pub(super) struct Waiting(Option<WaitFlag>);

impl Waiting {
    pub(super) fn begin() -> Self {
        let flag = CURRENT.try_with(Clone::clone).ok();
        if let Some(flag) = &flag {
            flag.0.store(true, Ordering::Relaxed);
        }
        Self(flag)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.0.store(false, Ordering::Relaxed);
        }
    }
}
