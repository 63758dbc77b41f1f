//! Errors that end the controller.

use outrigger_leader::NotLeader;

/// Why the controller ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It may not write any more.
    #[error("the tagging controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
    /// A defect: a task panicked.
    #[error("a call of the tagging controller ended")]
    Task(#[source] tokio::task::JoinError),
}
