//! The priority of the calls of a task, and whether one waits for a rate limit or for AWS's answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static PRIORITY: Priority;
    static WAIT_FLAG: WaitFlag;
}

/// The purpose of a call. Calls that wait for the same bucket are sent in the order of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// New Nodes and Services.
    Initialize,
    /// Nodes that are not Ready.
    Lifecycle,
    /// Drift repair.
    Refresh,
    Background,
}

impl Priority {
    /// Runs `calls` with this priority.
    pub async fn run<T>(self, calls: impl Future<Output = T>) -> T {
        PRIORITY.scope(self, calls).await
    }

    /// The priority of the running task; [`Priority::Lifecycle`] where nothing was said.
    #[must_use]
    pub fn current() -> Self {
        PRIORITY.try_with(|priority| *priority).unwrap_or(Self::Lifecycle)
    }

    /// The priority as a label of a metric and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Lifecycle => "lifecycle",
            Self::Refresh => "refresh",
            Self::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a call waits for a rate limit, and so has not been sent. Time-outs of calls check it: waiting may take minutes.
#[derive(Debug, Clone, Default)]
pub struct WaitFlag(Arc<AtomicBool>);

impl WaitFlag {
    /// Runs a call that sets this flag while it waits.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        WAIT_FLAG.scope(self.clone(), call).await
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
        let flag = WAIT_FLAG.try_with(Clone::clone).ok();
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
