//! Files on the machine: read with limits, replaced atomically.
//!
//! A file is replaced by a rename, so that a reader sees the old or the new text. The temporary file is in another
//! folder than a manifest: the kubelet starts every file of its manifest folder
//! (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/pkg/kubelet/config/file.go>).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use outrigger_shared::yaml_text;

use super::error::Error;

/// Largest file that is edited, in bytes.
pub(super) const MAX_BYTES: u64 = yaml_text::MAX_BYTES as u64;

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    mode: u32,
    uid: u32,
    gid: u32,
}

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Empty if there is no file.
    pub text: String,
    /// None if there is no file.
    pub owner: Option<Owner>,
}

impl Content {
    pub const fn absent() -> Self {
        Self {
            text: String::new(),
            owner: None,
        }
    }
}

/// Reads a regular file of text; none if there is no file.
pub(super) fn read(path: &Path, max_bytes: u64) -> Result<Option<Content>, Error> {
    let failed = |source| Error::io(path, source);
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_symlink() {
        let target = fs::read_link(path).map_err(failed)?;
        let path = path.to_owned();
        return Err(Error::SymbolicLink { path, target });
    }
    if !metadata.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }

    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max_bytes {
        let path = path.to_owned();
        return Err(Error::TooLarge { path, max_bytes });
    }

    let text = String::from_utf8(bytes).map_err(|error| Error::Encoding {
        path: path.to_owned(),
        at: error.utf8_error().valid_up_to(),
    })?;
    let owner = Owner {
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
    };

    Ok(Some(Content {
        text,
        owner: Some(owner),
    }))
}

/// Makes changes, and asks before each of them.
pub(super) struct Disk<'a> {
    before_change: &'a mut dyn FnMut() -> io::Result<()>,
}

impl<'a> Disk<'a> {
    /// `before_change` is called before each change; its error ends the operation.
    pub fn new(before_change: &'a mut dyn FnMut() -> io::Result<()>) -> Self {
        Self { before_change }
    }

    /// Replaces a file if it has the expected content, with its mode and owner, or creates it if none is expected. The
    /// temporary file is in a folder of the same file system.
    pub fn replace(&mut self, path: &Path, folder: &Path, expected: &Content, text: &str) -> Result<(), Error> {
        let temporary = temporary(path, folder);
        let owner = match expected.owner {
            Some(owner) => owner,
            None => of_new_file(folder).map_err(|source| Error::io(folder, source))?,
        };
        self.remove_if_there(&temporary)
            .and_then(|()| self.create(&temporary, text, Some(owner)))
            .map_err(|source| Error::io(&temporary, source))?;

        let renamed = self.rename_if_unchanged(path, &temporary, expected);
        if renamed.is_err() {
            // The error of the rename matters more; the next run removes the file.
            let _ = self.remove_if_there(&temporary);
        }

        renamed
    }

    fn rename_if_unchanged(&mut self, path: &Path, temporary: &Path, expected: &Content) -> Result<(), Error> {
        is_as_expected(path, expected)?;
        match self.rename(temporary, path) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => Err(Error::OtherFileSystem {
                path: path.to_owned(),
                folder: temporary.parent().unwrap_or(temporary).to_owned(),
            }),
            renamed => renamed.map_err(|source| Error::io(path, source)),
        }
    }

    /// Writes a file of its own, which only its owner can read.
    pub fn save(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let failed = |source| Error::io(path, source);
        let folder = path.parent().unwrap_or(path);
        self.create_folder(folder).map_err(|source| Error::io(folder, source))?;

        let temporary = temporary(path, folder);
        self.remove_if_there(&temporary).map_err(failed)?;
        self.create(&temporary, text, None).map_err(failed)?;
        self.rename(&temporary, path).map_err(failed)
    }

    /// Removes a file that this command created, if it has the expected content.
    pub fn remove_created(&mut self, path: &Path, expected: &Content) -> Result<(), Error> {
        is_as_expected(path, expected)?;
        self.remove(path)
    }

    /// Removes a file, durably.
    pub fn remove(&mut self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::io(path, source);
        self.remove_if_there(path).map_err(failed)?;
        self.sync_folder_of(path).map_err(failed)
    }

    /// Creates a folder with the folders above it.
    pub fn create_folder(&mut self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(above) = folder.parent() {
            self.create_folder(above)?;
        }

        (self.before_change)()?;
        DirBuilder::new().mode(0o700).create(folder)?;
        self.sync_folder_of(folder)
    }

    /// Writes a new file to the disk. It is written in pieces, as a system may do with a long text.
    fn create(&mut self, path: &Path, text: &str, owner: Option<Owner>) -> io::Result<()> {
        const PIECE: usize = 4096;

        (self.before_change)()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        for piece in text.as_bytes().chunks(PIECE) {
            (self.before_change)()?;
            file.write_all(piece)?;
        }

        if let Some(Owner { mode, uid, gid }) = owner {
            let created = file.metadata()?;
            if (created.uid(), created.gid()) != (uid, gid) {
                (self.before_change)()?;
                chown(path, Some(uid), Some(gid))?;
            }
            (self.before_change)()?;
            file.set_permissions(Permissions::from_mode(mode))?;
        }

        (self.before_change)()?;
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        (self.before_change)()?;
        fs::rename(from, to)?;
        self.sync_folder_of(to)
    }

    fn remove_if_there(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        (self.before_change)()?;
        fs::remove_file(path)
    }

    fn sync_folder_of(&mut self, path: &Path) -> io::Result<()> {
        (self.before_change)()?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    }
}

fn is_as_expected(path: &Path, expected: &Content) -> Result<(), Error> {
    let found = read(path, MAX_BYTES)?.unwrap_or_else(Content::absent);
    match found == *expected {
        true => Ok(()),
        false => Err(Error::ChangedMeanwhile { path: path.to_owned() }),
    }
}

/// A new file has the owner of its folder, and everybody can read it, as files of packages in `/etc`.
fn of_new_file(folder: &Path) -> io::Result<Owner> {
    let metadata = fs::metadata(folder)?;
    Ok(Owner {
        mode: 0o644,
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

/// The same for every run, so that a run removes what an earlier one has left.
fn temporary(path: &Path, folder: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder.join(format!(".outrigger-{name}.tmp"))
}
