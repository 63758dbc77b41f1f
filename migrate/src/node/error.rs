//! Errors of `outrigger node`.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use outrigger_shared::migration::Phase;
use outrigger_shared::yaml_text;

/// Why files are not changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: permission denied; run the command as root", path.display())]
    Permission { path: PathBuf },
    #[error("{} is a symbolic link to {}; name the folder of that file, or replace the link by the file", path.display(), target.display())]
    SymbolicLink { path: PathBuf, target: PathBuf },
    #[error("{} is not a regular file; move it to another folder", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} has more than {max_bytes} bytes, as no file of this kind has; check the path", path.display())]
    TooLarge { path: PathBuf, max_bytes: u64 },
    #[error("{} is not UTF-8 from byte {at} on; correct it", path.display())]
    Encoding { path: PathBuf, at: usize },
    #[error("{} has changed while this command was running, so it is not replaced; run the command again", path.display())]
    ChangedMeanwhile { path: PathBuf },
    #[error(
        "{} cannot be replaced atomically: {} is on another file system; unmount one of them, or edit the file by hand",
        path.display(), folder.display()
    )]
    OtherFileSystem { path: PathBuf, folder: PathBuf },
    #[error(
        "{} is absent, so its original is not restored; bring the file back, or remove {} if it is not needed any more",
        path.display(), record.display()
    )]
    Gone { path: PathBuf, record: PathBuf },
    #[error("--{flag}={} is not an absolute path; it must begin with /", path.display())]
    RelativePath { flag: &'static str, path: PathBuf },
    #[error("--state={} is inside --manifests={}, where the kubelet reads every file; choose another folder", state.display(), manifests.display())]
    StateInManifests { state: PathBuf, manifests: PathBuf },
    #[error("another outrigger process is changing files of {}; wait until it ends", state.display())]
    Locked { state: PathBuf },
    #[error("--migration gives {}: {names}; name one with --migration=NAME", count)]
    Migrations { count: usize, names: String },
    #[error(
        "--phase={phase}: migration {migration} has no condition Prepared=True; wait for it and give the migration again, or \
         set --prepared if you have seen the condition"
    )]
    NotPrepared { migration: String, phase: Phase },
    #[error(
        "{place}: metadata.uid is missing, so this is no object of a cluster, and its phase may be another one than the \
         cluster's; write the object to the file: kubectl get cloudprovidermigration {migration} -o yaml, or add --dry-run"
    )]
    NoObject { place: String, migration: String },
    #[error(
        "this machine has the form of {from}, and {place} asks for {to}, which is a step back; get the object of the cluster \
         again: kubectl get cloudprovidermigration {migration} -o yaml. If the cluster goes back, add --back"
    )]
    StepBack {
        place: String,
        migration: String,
        from: Phase,
        to: Phase,
    },
    #[error("spec.mode of migration {migration} is Audit, so nothing is changed; set it to Enforce, or add --dry-run")]
    Audit { migration: String },
    #[error(
        "no file of {what} on this machine: {} holds no such manifest, and {kubelet} sets no flags; name the folder with --manifests",
        folder.display()
    )]
    Nothing {
        folder: PathBuf,
        what: String,
        kubelet: &'static str,
    },
    #[error("{} and {} both run {component}, and the kubelet starts both; move one of them out of the folder", first.display(), second.display())]
    Twice {
        component: String,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("{} has more than {max} files; move the files that are not static Pods out of the folder", folder.display())]
    TooManyFiles { folder: PathBuf, max: usize },
    #[error("{}: {source}", path.display())]
    Text { path: PathBuf, source: yaml_text::Refusal },
    /// Flags of the kubelet that cannot be determined, or are where this command edits none.
    #[error("{cause}")]
    Unit { cause: String },
    #[error("{}: it holds {count} documents, and the kubelet reads one; split it", path.display())]
    Documents { path: PathBuf, count: usize },
    #[error("{}: the undo record cannot be read ({cause}); restore the record from a backup, or remove it and restore the file by hand", path.display())]
    Record { path: PathBuf, cause: String },
    #[error("{}: the change does not apply ({cause}); please report this defect", path.display())]
    Patch { path: PathBuf, cause: String },
}

impl Error {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied => Self::Permission { path },
            _ => Self::Io { path, source },
        }
    }

    /// Whether the input is right, but the file or the cluster is not in a state for the change.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::ChangedMeanwhile { .. }
                | Self::Unit { .. }
                | Self::Gone { .. }
                | Self::NotPrepared { .. }
                | Self::StepBack { .. }
                | Self::Audit { .. }
        )
    }
}
