//! What `outrigger mutate` cannot do.

use std::io;
use std::path::PathBuf;

use crate::documents::Origin;

/// What makes no sense with the objects at hand.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An update needs what is stored.
    #[error(
        "--operation=update needs --old=FILE, the objects as they are stored: an update acts only on what it changes"
    )]
    OldMissing,
    /// And a creation has nothing that is stored.
    #[error("--old is for --operation=update; leave one of them out")]
    OldOnCreate,
    /// One object more than is stored.
    #[error("{origin}: {what} is not among the objects of --old={file}; add it, or leave it out here")]
    NotInOld {
        /// Where the object is.
        origin: Origin,
        /// The object.
        what: String,
        /// The file.
        file: String,
    },
    /// One object twice in what is stored.
    #[error("{origin}: {what} is twice in --old={file}; keep one")]
    TwiceInOld {
        /// Where the second is.
        origin: Origin,
        /// The object.
        what: String,
        /// The file.
        file: String,
    },
    /// A version that the webhook never sees.
    #[error(
        "{origin}: {what} is of version {version:?}; the API server shows it to the webhook as {expected}: give it in that version"
    )]
    Version {
        /// Where the object is.
        origin: Box<Origin>,
        /// The object.
        what: String,
        /// Its version.
        version: String,
        /// What the rules know.
        expected: String,
    },
    /// A path that is no migration's.
    #[error("--path={path}: no migration of that name counts here (there are: {names}), so nothing would be changed")]
    Path {
        /// The path's name.
        path: String,
        /// The names there are.
        names: String,
    },
    /// The patch does not fit its object; a defect in a decision.
    #[error("{origin}: the decision's own patch does not fit ({source}); please report this")]
    Patch {
        /// Where the object is.
        origin: Origin,
        /// What json-patch said.
        source: json_patch::PatchError,
    },
    /// The file of `--out`.
    #[error("--out={}: {source}", path.display())]
    Out {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
