//! The change of one file.

use std::path::{Path, PathBuf};

use outrigger_shared::migration::Phase;

use super::disk::{self, Content, Disk};
use super::error::Error;
use super::record::{self, Edited, Record};

/// A machine: all paths are those that the machine uses, below the root of its file system.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub rootfs: &'a Path,
    pub state: &'a Path,
}

impl Machine<'_> {
    /// Where this process finds a path of the machine.
    pub fn real(&self, path: &Path) -> PathBuf {
        self.rootfs.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub fn real_state(&self) -> PathBuf {
        self.real(self.state)
    }

    /// The undo record of a file, as this process finds it.
    pub fn record_place(&self, path: &Path) -> PathBuf {
        record::place(&self.real_state(), path)
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
}

impl Source {
    /// Reads a file with its undo record; none if there is no file.
    pub fn read(machine: &Machine<'_>, path: &Path, temporary_folder: &Path) -> Result<Option<Self>, Error> {
        let Some(current) = disk::read(&machine.real(path), disk::MAX_BYTES)? else {
            return Ok(None);
        };

        Ok(Some(Self {
            path: path.to_owned(),
            temporary_folder: temporary_folder.to_owned(),
            current,
            record: record::of(&machine.real_state(), path)?,
        }))
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

    /// Takes the present text for one of this command's own.
    pub fn accept(&mut self) {
        if let Some(record) = &mut self.record {
            record.replaced.clone_from(&self.current.text);
        }
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
    pub fn changed_since(machine: &Machine<'_>, source: Source) -> Self {
        let record = machine.record_place(&source.path);
        let phase = source.record.as_ref().map_or(Phase::InTree, |record| record.phase);
        let explanation = format!(
            "! the file has changed since `outrigger node edit --phase={phase}` wrote it. To make its present text the new \
             original, remove {}. To restore the recorded original, run `outrigger node undo --force`",
            record.display()
        );

        Self::refused(source, vec![explanation])
    }

    /// Changes the file. The undo record is on the disk before.
    pub fn apply(&self, machine: &Machine<'_>, owner: (&str, Phase), disk: &mut Disk<'_>) -> Result<(), Error> {
        let Source {
            path,
            temporary_folder,
            current,
            record,
        } = &self.source;
        let (place, folder) = (machine.real(path), machine.real(temporary_folder));
        let is_original = record.is_some() && self.source.original() == self.written;

        match self.status {
            Status::Refused => return Ok(()),
            Status::Unchanged => {}
            Status::Restored => disk.replace(&place, &folder, current, &self.written)?,
            Status::Changed => {
                let edited = Edited {
                    path,
                    temporary_folder,
                    original: self.source.original(),
                    replaced: &current.text,
                    written: &self.written,
                };
                Record::new(&edited, owner.0, owner.1).save(&machine.real_state(), disk)?;
                disk.replace(&place, &folder, current, &self.written)?;
            }
        }

        // Such a file needs no record any more.
        if is_original && self.status != Status::Changed {
            disk.remove(&machine.record_place(path))?;
        }

        Ok(())
    }
}
