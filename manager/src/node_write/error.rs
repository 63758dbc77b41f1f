//! Why a Node was not written.

use outrigger_leader::NotLeader;

/// A write that was not done, or whose outcome is not known.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error("the object no longer exists")]
    Gone,
    /// The object is not what the write was planned against; plan again.
    #[error("the object changed meanwhile: {0}")]
    Conflict(String),
    #[error("the API server did not accept the write")]
    Kubernetes(#[source] kube::Error),
    #[error("cannot form a URL from the Node's name")]
    Name(#[source] http::Error),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            // 422 is how the API server answers a `test` that does not hold.
            kube::Error::Api(status) if matches!(status.code, 409 | 422) => Self::Conflict(status.message),
            other => Self::Kubernetes(other),
        }
    }
}
