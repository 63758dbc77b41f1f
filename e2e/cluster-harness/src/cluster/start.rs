//! Files and folders of a run, and servers on free ports.

use std::path::Path;

use super::error::ClusterError;

pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ClusterError> {
    std::fs::write(path, content).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn create_folder(path: &Path) -> Result<(), ClusterError> {
    std::fs::create_dir_all(path).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

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
