//! Files and folders of a run, servers on free ports, and the processors that they use.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::process::Launch;

use super::error::ClusterError;

/// Writes a file at once: a program that has just been started may read the one before.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ClusterError> {
    let replace = || {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let readable = std::fs::Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
        file.write_all(content.as_ref())?;
        file.persist(path)?;
        std::io::Result::Ok(())
    };
    replace().map_err(|source| ClusterError::File {
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

/// Passes on GOMAXPROCS if it is set. `make test` sets 1: where more processes want to run than there are processors, a Go
/// program that uses one spends less on its own scheduling. A start of kube-apiserver takes 1.1 instead of 1.3 s of
/// processor time (<https://pkg.go.dev/runtime#hdr-Environment_Variables>).
pub(super) fn with_processor_limit(launch: Launch) -> Launch {
    match std::env::var("GOMAXPROCS") {
        Ok(limit) => launch.environment("GOMAXPROCS", limit),
        Err(_) => launch,
    }
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
