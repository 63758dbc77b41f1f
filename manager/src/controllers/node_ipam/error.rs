//! Errors that end the controller.

use ipnet::IpNet;
use outrigger_leader::NotLeader;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node IPAM controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
    /// The flags are checked at start, so this should not be.
    #[error("the range {0} cannot be cut into ranges of /{1} for Nodes")]
    Ranges(IpNet, u8),
    /// A defect: a task panicked.
    #[error("a write of the node IPAM controller ended")]
    Task(#[source] tokio::task::JoinError),
}
