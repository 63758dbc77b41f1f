//! Errors that end the controller.

use outrigger_leader::NotLeader;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node lifecycle controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}
