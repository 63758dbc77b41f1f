//! The priority of calls that wait for the same rate limit.

use std::fmt;

tokio::task_local! {
    static CURRENT: Priority;
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
        CURRENT.scope(self, calls).await
    }

    /// The priority of the running task; [`Priority::Lifecycle`] where nothing was said.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.try_with(|priority| *priority).unwrap_or(Self::Lifecycle)
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
