//! Why the controller ends.

use outrigger_leader::NotLeader;

/// Why the controller ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It may not write any more.
    #[error("the node lifecycle controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}
