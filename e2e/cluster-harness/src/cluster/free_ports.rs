//! Starting servers on free ports.

use super::error::ClusterError;

/// Tries `start` again on other ports when the child lost the race for the one it was given.
pub(super) async fn with_free_ports<T, F, Started>(mut start: F) -> Result<T, ClusterError>
where
    F: FnMut() -> Started,
    Started: Future<Output = Result<T, ClusterError>>,
{
    for _ in 0..2 {
        match start().await {
            Err(ClusterError::Process(error)) if error.lost_its_port() => {}
            other => return other,
        }
    }
    start().await
}
