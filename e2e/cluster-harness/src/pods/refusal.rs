//! Why a container is not run.

/// Why a container is not run. The Pod then waits with this reason and message, as it would on a kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A kubelet's own reason: `ErrImagePull`, `CreateContainerConfigError`, `CreateContainerError`.
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    pub(super) fn config(message: impl Into<String>) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.into(),
        }
    }
}
