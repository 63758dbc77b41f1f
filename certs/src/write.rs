//! Writes a serving pair so that a reader sees all of the old files or all of the new ones.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::issue::Issued;
use crate::pair::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};

const LINK: &str = "..data";
const NEW_LINK: &str = "..data_tmp";

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}; check that the directory exists, is writable and is not a mounted Secret", path.display())]
pub struct WriteError {
    pub operation: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// Writes `tls.crt`, `tls.key` and, where given, `ca.crt` into `directory`.
///
/// The layout is that of a mounted Secret: the files are symlinks through `..data`, and one rename of that link
/// switches all of them to the new content. The directory is created if it is missing; the key is readable to its owner
/// only.
///
/// # Errors
/// [`WriteError`] with the file and the reason. The previous files stay in use.
pub fn write(directory: &Path, issued: &Issued, authority_pem: Option<&str>) -> Result<(), WriteError> {
    fs::create_dir_all(directory).map_err(at("make", directory))?;

    let previous = fs::read_link(directory.join(LINK)).ok();
    let fresh = fill(directory, issued, authority_pem)?;
    let name = fresh.file_name().map(PathBuf::from).unwrap_or_default();
    if let Err(error) = swap(directory, &name, authority_pem.is_some()) {
        if fs::read_link(directory.join(LINK)).ok().as_ref() != Some(&name) {
            // Nothing points at the new folder, so it is of no use; the error that matters is the one above.
            drop(fs::remove_dir_all(&fresh));
        }
        return Err(error);
    }

    match previous {
        Some(old) if old != name => {
            let old = directory.join(old);
            fs::remove_dir_all(&old).map_err(at("remove the folder that is no longer used,", &old))
        }
        _ => Ok(()),
    }
}

fn fill(directory: &Path, issued: &Issued, authority_pem: Option<&str>) -> Result<PathBuf, WriteError> {
    // The prefix of two dots is the kubelet's: readers that list the directory skip it. It is deleted on drop unless it
    // is complete.
    let fresh = tempfile::Builder::new()
        .prefix("..issue-")
        .tempdir_in(directory)
        .map_err(at("make a folder in", directory))?;
    fs::set_permissions(fresh.path(), Permissions::from_mode(0o755)).map_err(at("set the mode of", fresh.path()))?;
    put(&fresh.path().join(CERTIFICATE_FILE), &issued.certificate_pem, 0o644)?;
    put(&fresh.path().join(KEY_FILE), &issued.key_pem, 0o600)?;
    if let Some(pem) = authority_pem {
        put(&fresh.path().join(CA_FILE), pem, 0o644)?;
    }

    Ok(fresh.keep())
}

fn put(path: &Path, text: &str, mode: u32) -> Result<(), WriteError> {
    let mut file = File::create_new(path).map_err(at("make", path))?;
    file.set_permissions(Permissions::from_mode(mode))
        .map_err(at("set the mode of", path))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(at("write", path))
}

fn swap(directory: &Path, fresh: &Path, with_authority: bool) -> Result<(), WriteError> {
    let new_link = directory.join(NEW_LINK);
    remove_if_there(&new_link)?;
    symlink(fresh, &new_link).map_err(at("make", &new_link))?;

    let link = directory.join(LINK);
    fs::rename(&new_link, &link).map_err(at("replace", &link))?;
    for file in [CERTIFICATE_FILE, KEY_FILE] {
        point(directory, file)?;
    }

    if with_authority {
        point(directory, CA_FILE)
    } else {
        remove_if_there(&directory.join(CA_FILE))
    }
}

/// Makes `file` a link through `..data`, replacing a plain file of that name.
fn point(directory: &Path, file: &str) -> Result<(), WriteError> {
    let target = Path::new(LINK).join(file);
    let path = directory.join(file);
    if fs::read_link(&path).is_ok_and(|present| present == target) {
        return Ok(());
    }

    let temporary = directory.join(format!("..{file}_tmp"));
    remove_if_there(&temporary)?;
    symlink(&target, &temporary).map_err(at("make", &temporary))?;

    fs::rename(&temporary, &path).map_err(at("replace", &path))
}

fn remove_if_there(path: &Path) -> Result<(), WriteError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(WriteError {
            operation: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn at(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError {
        operation,
        path,
        source,
    }
}
