//! Files and folders of a run.

use std::path::Path;

use super::error::ClusterError;

/// Writes a file of the run.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ClusterError> {
    std::fs::write(path, content).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

/// Makes a folder of the run.
pub(super) fn folder(path: &Path) -> Result<(), ClusterError> {
    std::fs::create_dir_all(path).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}
