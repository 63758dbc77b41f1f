//! Distinguishes a call that waits for a rate limit from one that waits for AWS's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static CURRENT: WaitFlag;
}

/// Whether a call waits for a rate limit, and so has not been sent. Time-outs of calls check it: waiting may take minutes.
#[derive(Debug, Clone, Default)]
pub struct WaitFlag(Arc<AtomicBool>);

impl WaitFlag {
    /// Runs a call that sets this flag while it waits.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), call).await
    }

    /// Whether the call waits now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets the flag of the running call until dropped.
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
