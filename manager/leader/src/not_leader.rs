//! The error of a write that this process may not do.

/// This process may not write now. A write that has not been sent must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process does not hold the lease that guards this write, or too little time is left before the renew deadline"
)]
pub struct NotLeader;
