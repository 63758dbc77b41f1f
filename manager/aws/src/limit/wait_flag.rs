//! Telling a call that waits for its turn from one that AWS is slow to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static CURRENT: Turn;
}

/// Whether a call still waits for its turn, and so has not been sent. Whoever bounds the time that a call may take asks
/// this: waiting for budget may take minutes.
#[derive(Debug, Clone, Default)]
pub struct Turn(Arc<AtomicBool>);

impl Turn {
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
pub(super) struct Waiting(Option<Turn>);

impl Waiting {
    pub(super) fn begin() -> Self {
        let turn = CURRENT.try_with(Clone::clone).ok();
        if let Some(turn) = &turn {
            turn.0.store(true, Ordering::Relaxed);
        }
        Self(turn)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.0.store(false, Ordering::Relaxed);
        }
    }
}
