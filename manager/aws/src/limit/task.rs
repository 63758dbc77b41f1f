//! The priority of the calls of a task, and how far one is: it waits for a rate limit, or for AWS's answer.

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
    /// Dry runs of controllers. Their requests have `dry-run` in the user agent, so that records of AWS tell them apart.
    DryRun,
}

impl Priority {
    /// Runs `calls` with this priority; with that of a dry run, if this is a part of one.
    pub async fn run<T>(self, calls: impl Future<Output = T>) -> T {
        PRIORITY.scope(self.within(), calls).await
    }

    /// This priority; that of a dry run, if the running task is a part of one.
    #[must_use]
    pub fn within(self) -> Self {
        match Self::current() {
            Self::DryRun => Self::DryRun,
            _ => self,
        }
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
            Self::DryRun => "dry_run",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a call is. Time-outs of calls check it: waiting for a rate limit may take minutes.
#[derive(Clone)]
pub struct WaitFlag(Arc<Progress>);

struct Progress {
    waits: AtomicBool,
    /// An attempt was sent, and had no answer. The SDK may have sent another one since.
    is_unanswered: AtomicBool,
    was_refused: AtomicBool,
    may_send: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for WaitFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitFlag")
            .field("waits", &self.0.waits)
            .field("is_unanswered", &self.0.is_unanswered)
            .field("was_refused", &self.0.was_refused)
            .finish_non_exhaustive()
    }
}

impl WaitFlag {
    /// A call that asks `may_send` at the moment of each send, those of the SDK's own repetitions included.
    #[must_use]
    pub fn of(may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Progress {
            waits: AtomicBool::new(false),
            is_unanswered: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
            may_send: Box::new(may_send),
        }))
    }

    /// Runs the call.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        WAIT_FLAG.scope(self.clone(), call).await
    }

    /// Whether the call waits for a rate limit now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Whether an attempt of the call had no answer, so that it may take effect yet.
    #[must_use]
    pub fn has_unanswered_attempt(&self) -> bool {
        self.0.is_unanswered.load(Ordering::Relaxed)
    }

    /// Whether an attempt was not sent, because it might not be.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.0.was_refused.load(Ordering::Relaxed)
    }
}

/// Whether the running call may be sent now. The HTTP client asks it before each request.
#[must_use]
pub fn may_send() -> bool {
    let asked = WAIT_FLAG.try_with(|WaitFlag(progress)| {
        let may = (progress.may_send)();
        if !may {
            progress.was_refused.store(true, Ordering::Relaxed);
        }
        may
    });
    // A read.
    asked.unwrap_or(true)
}

/// The HTTP client says that a request of the running call had no answer.
pub fn attempt_unanswered() {
    // A read has no flag.
    let _ = WAIT_FLAG.try_with(|WaitFlag(progress)| progress.is_unanswered.store(true, Ordering::Relaxed));
}

/// Sets the flag of the running call until dropped.
pub(super) struct Waiting(Option<WaitFlag>);

impl Waiting {
    pub(super) fn begin() -> Self {
        let flag = WAIT_FLAG.try_with(Clone::clone).ok();
        if let Some(flag) = &flag {
            flag.0.waits.store(true, Ordering::Relaxed);
        }
        Self(flag)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.0.waits.store(false, Ordering::Relaxed);
        }
    }
}
