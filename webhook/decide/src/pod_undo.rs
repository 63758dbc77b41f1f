//! Annotations on a Pod or Pod template: the undo entries, and the text of the leader migration file.

use outrigger_shared::{annotations, command_line::Edit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    fields::{self, annotation},
    leader_migration_file::Addition,
};
use crate::patch::{Builder, NotAnObject, Path};

/// Content of the undo annotation: a list, flags first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Undo {
    flags: Vec<FlagEntry>,
    /// Additions to the leader migration file.
    pub made: Vec<Addition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FlagEntry {
    container: String,
    #[serde(flatten)]
    edit: Edit,
}

/// Why the undo annotation cannot be written; without it the original would be lost.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritable {
    #[error(transparent)]
    Text(#[from] serde_json::Error),
    #[error(transparent)]
    Place(#[from] NotAnObject),
}

impl Undo {
    pub fn read(pod: &Value) -> Result<Self, serde_json::Error> {
        let Some(text) = annotation(pod, annotations::UNDO).and_then(Value::as_str) else {
            return Ok(Self::default());
        };

        let mut undo = Self::default();
        for entry in serde_json::from_str::<Vec<Value>>(text)? {
            if entry.get("made").is_some() {
                undo.made.push(serde_json::from_value(entry)?);
            } else {
                undo.flags.push(serde_json::from_value(entry)?);
            }
        }

        Ok(undo)
    }

    pub fn edits(&self, container: &str) -> Vec<Edit> {
        let own = self.flags.iter().filter(|entry| entry.container == container);
        own.map(|entry| entry.edit.clone()).collect()
    }

    pub fn note(&mut self, container: &str, edits: Vec<Edit>) {
        self.flags.extend(edits.into_iter().map(|edit| FlagEntry {
            container: container.to_owned(),
            edit,
        }));
    }

    fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.made.is_empty()
    }

    fn text(&self) -> Result<String, serde_json::Error> {
        let flags = self.flags.iter().map(serde_json::to_string);
        let made = self.made.iter().map(serde_json::to_string);
        let entries: Vec<String> = flags.chain(made).collect::<Result<_, _>>()?;
        Ok(format!("[{}]", entries.join(",")))
    }
}

/// Writes the annotations that change. `undo` is the old and the new content; `file` is the new value of the file's
/// annotation, if it changes.
pub(super) fn write(
    builder: &mut Builder,
    root: &Path,
    pod: &Value,
    undo: (&Undo, &Undo),
    file: Option<Option<Value>>,
) -> Result<(), Unwritable> {
    let (before, after) = undo;
    let metadata = pod
        .get("metadata")
        .map(|metadata| ("metadata".to_owned(), metadata.clone()));
    let old = Value::Object(metadata.into_iter().collect());
    let mut new = old.clone();
    let mut set = |key: &str, value| {
        fields::set_annotation(&mut new, key, value).map_err(|NotAnObject { path }| NotAnObject {
            path: format!("{}{path}", root.pointer()),
        })
    };

    if before != after {
        let text = (!after.is_empty()).then(|| after.text()).transpose()?;
        set(annotations::UNDO, text.map(Value::from))?;
    }
    if let Some(value) = file {
        set(annotations::LEADER_MIGRATION, value)?;
    }

    builder.value(root, &old, &new);

    Ok(())
}
