//! The change of one file, and its undo record in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use outrigger_shared::migration::Phase;
use serde::{Deserialize, Serialize};

use super::disk::{self, Content, Disk};
use super::error::Error;
use crate::args::MachineArgs;

const API_VERSION: &str = "cli.outrigger.dev/v1alpha1";
const KIND: &str = "NodeUndo";

/// A record holds three texts, and JSON escapes line feeds and quotes.
const MAX_RECORD_BYTES: u64 = 8 * disk::MAX_BYTES;

/// The undo record of one file. It is on the disk before the file changes, and holds every text that the file can have
/// after a crash, so the next run recognises the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    api_version: String,
    kind: String,
    /// As the machine names it.
    pub path: PathBuf,
    /// Where its temporary file is written.
    pub temporary_folder: PathBuf,
    pub migration: String,
    pub phase: Phase,
    /// Whether there was no file before the first edit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// The text before the first edit.
    pub original: String,
    /// The text before the last edit.
    pub replaced: String,
    /// The text after the last edit.
    pub written: String,
}

impl Record {
    /// Whether the text is one that this command has written or found.
    pub fn knows(&self, text: &str) -> bool {
        [&self.original, &self.replaced, &self.written].contains(&&text.to_owned())
    }

    fn save(&self, place: &Path, disk: &mut Disk<'_>) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Record {
            path: place.to_owned(),
            cause: error.to_string(),
        })?;
        disk.save(place, &text)
    }

    /// The record in a file; none if there is no such file.
    fn read(machine: &MachineArgs, found: &Path) -> Result<Option<Self>, Error> {
        let failed = |cause: String| Error::Record {
            path: found.to_owned(),
            cause,
        };
        let Some(content) = disk::read(found, MAX_RECORD_BYTES)? else {
            return Ok(None);
        };

        let record: Self = serde_json::from_str(&content.text).map_err(|error| failed(error.to_string()))?;
        if (record.api_version.as_str(), record.kind.as_str()) != (API_VERSION, KIND) {
            return Err(failed(format!("it is {} of {}", record.kind, record.api_version)));
        }
        if machine.record_place(&record.path)? != found {
            return Err(failed(format!("it is about {}", record.path.display())));
        }

        Ok(Some(record))
    }

    /// All records of the machine, by name.
    pub fn all(machine: &MachineArgs) -> Result<Vec<Self>, Error> {
        let state = machine.real_state()?;
        let failed = |source| Error::io(&state, source);
        if !state.exists() {
            return Ok(Vec::new());
        }

        let mut places = Vec::new();
        for entry in fs::read_dir(&state).map_err(failed)? {
            let place = entry.map_err(failed)?.path();
            let is_hidden = place
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if place.extension().is_some_and(|extension| extension == "json") && !is_hidden {
                places.push(place);
            }
        }

        places.sort();
        let records = places.iter().map(|found| Self::read(machine, found));
        records.filter_map(Result::transpose).collect()
    }
}

impl MachineArgs {
    /// The folder of the undo records, as this process finds it.
    pub(super) fn real_state(&self) -> Result<PathBuf, Error> {
        self.followed(&self.state)
    }

    /// The undo record of a file, as this process finds it. The name holds the whole path, because `/etc/default` and
    /// `/etc/sysconfig` have files of one name.
    pub(super) fn record_place(&self, path: &Path) -> Result<PathBuf, Error> {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/').replace('/', "-");
        Ok(self.real_state()?.join(format!("{name}.json")))
    }
}

/// A file that may be edited.
#[derive(Debug)]
pub(super) struct Source {
    pub path: PathBuf,
    /// Where its temporary file is written.
    pub temporary_folder: PathBuf,
    pub current: Content,
    pub record: Option<Record>,
    /// The undo record's file, as this process finds it.
    record_place: PathBuf,
}

impl Source {
    /// Reads a file with its undo record; none if there is no file, and there was one before the first edit.
    pub fn read(machine: &MachineArgs, path: &Path, temporary_folder: &Path) -> Result<Option<Self>, Error> {
        let source = Self::read_or_absent(machine, path, temporary_folder)?;
        let was_absent = source.record.as_ref().is_some_and(|record| record.created);
        Ok((!source.is_absent() || was_absent).then_some(source))
    }

    /// Reads a file that may be absent.
    pub fn read_or_absent(machine: &MachineArgs, path: &Path, temporary_folder: &Path) -> Result<Self, Error> {
        let current = disk::read(&machine.real(path)?, disk::MAX_BYTES)?;
        let record_place = machine.record_place(path)?;
        Ok(Self {
            path: path.to_owned(),
            temporary_folder: temporary_folder.to_owned(),
            current: current.unwrap_or_else(Content::absent),
            record: Record::read(machine, &record_place)?,
            record_place,
        })
    }

    pub const fn is_absent(&self) -> bool {
        self.current.owner.is_none()
    }

    /// Whether there was no file before the first edit.
    fn was_absent(&self) -> bool {
        match &self.record {
            Some(record) if !self.has_changed() => record.created,
            _ => self.is_absent(),
        }
    }

    /// A manifest has its temporary file in another folder.
    pub fn is_manifest(&self) -> bool {
        self.path.parent() != Some(&self.temporary_folder)
    }

    /// Whether another program has written the file since its last edit.
    pub fn has_changed(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| !record.knows(&self.current.text))
    }

    /// The text before the first edit.
    pub fn original(&self) -> &str {
        match &self.record {
            Some(record) if !self.has_changed() => &record.original,
            _ => &self.current.text,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Unchanged,
    Changed,
    Restored,
    Refused,
}

/// The decision about one file, and its explanation.
#[derive(Debug)]
pub(super) struct Plan {
    pub source: Source,
    pub status: Status,
    /// The text that the file gets.
    pub written: String,
    pub explanations: Vec<String>,
}

impl Plan {
    pub fn is_changed(&self) -> bool {
        matches!(self.status, Status::Changed | Status::Restored)
    }

    pub fn refused(source: Source, explanations: Vec<String>) -> Self {
        Self {
            status: Status::Refused,
            written: source.current.text.clone(),
            source,
            explanations,
        }
    }

    /// Gives the file a text that was made from its original.
    pub fn write(source: Source, written: String, explanations: Vec<String>) -> Self {
        let status = match &source.current.text {
            current if *current == written => Status::Unchanged,
            _ if source.record.is_some() && source.original() == written => Status::Restored,
            _ => Status::Changed,
        };

        Self {
            source,
            status,
            written,
            explanations,
        }
    }

    /// Refuses a file that another program has written since its last edit.
    pub fn changed_since(source: Source) -> Self {
        let phase = source.record.as_ref().map_or(Phase::InTree, |record| record.phase);
        let explanation = format!(
            "! the file has changed since `outrigger node edit --phase={phase}` wrote it. To make its present text the new \
             original, remove {}. To restore the recorded original, run `outrigger node undo --force`",
            source.record_place.display()
        );

        Self::refused(source, vec![explanation])
    }

    /// Changes the file. The undo record is on the disk before.
    pub fn apply(&self, machine: &MachineArgs, owner: (&str, Phase), disk: &mut Disk<'_>) -> Result<(), Error> {
        let Source {
            path,
            temporary_folder,
            current,
            record,
            record_place,
        } = &self.source;
        let (place, folder) = (machine.real(path)?, machine.followed(temporary_folder)?);
        let is_original = record.is_some() && self.source.original() == self.written;

        match self.status {
            Status::Refused => return Ok(()),
            Status::Unchanged => {}
            Status::Restored if self.source.was_absent() => disk.remove_created(&place, current)?,
            Status::Restored => disk.replace(&place, &folder, current, &self.written)?,
            Status::Changed => {
                let record = Record {
                    api_version: API_VERSION.to_owned(),
                    kind: KIND.to_owned(),
                    path: path.clone(),
                    temporary_folder: temporary_folder.clone(),
                    migration: owner.0.to_owned(),
                    phase: owner.1,
                    created: self.source.was_absent(),
                    original: self.source.original().to_owned(),
                    replaced: current.text.clone(),
                    written: self.written.clone(),
                };
                record.save(record_place, disk)?;
                disk.replace(&place, &folder, current, &self.written)?;
            }
        }

        // Such a file needs no record any more.
        if is_original && self.status != Status::Changed {
            disk.remove(record_place)?;
        }

        Ok(())
    }
}
