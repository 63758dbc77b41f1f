//! Reads a serving pair from a directory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;

use crate::pair::{CA_FILE, CERTIFICATE_FILE, Content, KEY_FILE, LoadError, MAX_FILE, Pair, Source, parse};

/// How often a directory is read again when it was swapped between two of its files.
const SWAP_RETRIES: usize = 3;

/// Loads and checks the pair of `source` as of `now`.
///
/// # Errors
/// [`LoadError`] when a file is missing or not PEM, key and certificate are no pair, the certificate is not valid at
/// `now`, or it does not cover a name of the source.
pub fn load(source: &Source, provider: &CryptoProvider, now: Timestamp) -> Result<Pair, LoadError> {
    parse(source, &read(&source.directory)?, provider, now)
}

/// Reads the files of one issue: the kubelet may swap the directory between two reads, which shows in a certificate
/// that differs before and after.
pub(crate) fn read(directory: &Path) -> Result<Content, LoadError> {
    let mut seen = read_once(directory)?;
    for _ in 0..SWAP_RETRIES {
        let again = read_once(directory)?;
        if again == seen {
            break;
        }
        seen = again;
    }

    Ok(seen)
}

fn read_once(directory: &Path) -> Result<Content, LoadError> {
    let certificate = read_file(directory.join(CERTIFICATE_FILE))?;
    let key = read_file(directory.join(KEY_FILE))?;
    let authority = match read_file(directory.join(CA_FILE)) {
        Ok(bytes) => Some(bytes),
        Err(LoadError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };

    Ok(Content {
        certificate,
        key,
        authority,
    })
}

pub(crate) fn read_file(path: PathBuf) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    let result = File::open(&path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    match result {
        Err(source) => Err(LoadError::Read { path, source }),
        Ok(length) if length as u64 > MAX_FILE => Err(LoadError::TooLarge { path }),
        Ok(_) => Ok(bytes),
    }
}
