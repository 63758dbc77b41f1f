//! Errors of `outrigger mutate`.

use std::io;
use std::path::PathBuf;

use crate::documents::Origin;

/// Flags and objects that contradict each other.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "--operation=update needs --old=FILE, the objects as they are stored: an update acts only on what it changes"
    )]
    OldMissing,
    #[error("--old is for --operation=update; leave one of them out")]
    OldOnCreate,
    #[error("{origin}: {what} is not in --old={file}; add it there, or remove it here")]
    NotInOld { origin: Origin, what: String, file: String },
    #[error("{origin}: {what} occurs twice in --old={file}; remove one")]
    TwiceInOld { origin: Origin, what: String, file: String },
    /// A version that the API server never sends to the webhook.
    #[error(
        "{origin}: {what} has version {version:?}; the API server sends it to the webhook as {expected}: convert it to that version"
    )]
    Version {
        origin: Box<Origin>,
        what: String,
        version: String,
        expected: String,
    },
    #[error("--path={path}: no migration has that name (there are: {names}), so nothing would be changed")]
    Path { path: String, names: String },
    /// A defect in the decision.
    #[error("{origin}: the patch does not apply ({source}); please report this defect")]
    Patch {
        origin: Origin,
        source: json_patch::PatchError,
    },
    #[error("--out={}: {source}", path.display())]
    Out { path: PathBuf, source: io::Error },
}
