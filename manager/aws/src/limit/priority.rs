//! Who goes first when AWS's budget is short.

use std::fmt;

tokio::task_local! {
    static CURRENT: Lane;
}

/// What a call is for. Of calls that wait for the same budget, those of an earlier lane go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Someone waits for it: a new Node, a Service.
    Initialize,
    /// Nodes that are in trouble.
    Lifecycle,
    /// Keeping true what is there.
    Refresh,
    /// Whatever has time.
    Background,
}

impl Lane {
    /// Runs `calls` in this lane.
    pub async fn run<T>(self, calls: impl Future<Output = T>) -> T {
        CURRENT.scope(self, calls).await
    }

    /// The lane of the running task; [`Lane::Lifecycle`] where nothing was said.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.try_with(|lane| *lane).unwrap_or(Self::Lifecycle)
    }

    /// The lane as a label of a metric and in the log.
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

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
