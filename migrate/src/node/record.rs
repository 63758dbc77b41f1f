//! Undo records: the original of each edited file, in a folder of their own.
//!
//! A record is on the disk before its file changes. It holds every text that the file can have after a crash, so the
//! next run recognises the file.

use std::path::{Path, PathBuf};

use outrigger_shared::migration::Phase;
use serde::{Deserialize, Serialize};

use super::disk::{self, Disk};
use super::error::Error;

const API_VERSION: &str = "cli.outrigger.dev/v1alpha1";
const KIND: &str = "NodeUndo";

/// A record holds three texts, and JSON escapes line feeds and quotes.
const MAX_BYTES: u64 = 8 * disk::MAX_BYTES;

/// The undo record of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    api_version: String,
    kind: String,
    /// The edited file, as the machine names it.
    pub path: PathBuf,
    /// Where its temporary file is written.
    pub temporary_folder: PathBuf,
    pub migration: String,
    pub phase: Phase,
    /// The text before the first edit.
    pub original: String,
    /// The text before the last edit.
    pub replaced: String,
    /// The text after the last edit.
    pub written: String,
}

/// The edited file and its text in the three states.
#[derive(Debug)]
pub(super) struct Edited<'a> {
    pub path: &'a Path,
    pub temporary_folder: &'a Path,
    pub original: &'a str,
    pub replaced: &'a str,
    pub written: &'a str,
}

impl Record {
    pub fn new(edited: &Edited<'_>, migration: &str, phase: Phase) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            path: edited.path.to_owned(),
            temporary_folder: edited.temporary_folder.to_owned(),
            migration: migration.to_owned(),
            phase,
            original: edited.original.to_owned(),
            replaced: edited.replaced.to_owned(),
            written: edited.written.to_owned(),
        }
    }

    /// Whether the text is one that this command has written or found.
    pub fn knows(&self, text: &str) -> bool {
        [&self.original, &self.replaced, &self.written].contains(&&text.to_owned())
    }

    pub fn save(&self, state: &Path, disk: &mut Disk<'_>) -> Result<(), Error> {
        let place = place(state, &self.path);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Record {
            path: place.clone(),
            cause: error.to_string(),
        })?;
        disk.save(&place, &text)
    }
}

/// The file of a record. The name holds the whole path, because `/etc/default` and `/etc/sysconfig` have files of one
/// name.
pub(super) fn place(state: &Path, path: &Path) -> PathBuf {
    let name = path.to_string_lossy();
    state.join(format!("{}.json", name.trim_start_matches('/').replace('/', "-")))
}

/// The record of a file; none if it was not edited.
pub(super) fn of(state: &Path, path: &Path) -> Result<Option<Record>, Error> {
    let place = place(state, path);
    read(state, &place)
}

fn read(state: &Path, found: &Path) -> Result<Option<Record>, Error> {
    let failed = |cause: String| Error::Record {
        path: found.to_owned(),
        cause,
    };
    let Some(content) = disk::read(found, MAX_BYTES)? else {
        return Ok(None);
    };

    let record: Record = serde_json::from_str(&content.text).map_err(|error| failed(error.to_string()))?;
    if (record.api_version.as_str(), record.kind.as_str()) != (API_VERSION, KIND) {
        return Err(failed(format!("it is {} of {}", record.kind, record.api_version)));
    }
    if place(state, &record.path) != found {
        return Err(failed(format!("it is about {}", record.path.display())));
    }

    Ok(Some(record))
}

/// All records of a folder, by name.
pub(super) fn all(state: &Path) -> Result<Vec<Record>, Error> {
    let failed = |source| Error::io(state, source);
    if !state.exists() {
        return Ok(Vec::new());
    }

    let mut places = Vec::new();
    for entry in std::fs::read_dir(state).map_err(failed)? {
        let place = entry.map_err(failed)?.path();
        let is_hidden = place
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if place.extension().is_some_and(|extension| extension == "json") && !is_hidden {
            places.push(place);
        }
    }

    places.sort();
    let records: Result<Vec<Option<Record>>, Error> = places.iter().map(|found| read(state, found)).collect();
    Ok(records?.into_iter().flatten().collect())
}
