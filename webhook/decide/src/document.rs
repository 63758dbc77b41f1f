//! An object with a record of every change, so that each change can be undone byte for byte.
//!
//! The record is stored in the undo annotation. The owner may write the object between the change and the undo, so a
//! change is undone only while its new value is still there. Other values are the owner's, and stay.

use outrigger_shared::{
    command_line::{CommandLine, Edit},
    work,
    yaml_text::{self, LineEdit, YamlText},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{
    arguments::{ListFormat, Unfit},
    fields::{append, find, prune, take, write},
};
use crate::patch::{NotAnObject, Path};

/// One recorded change. `at` is a JSON Pointer into the object; `parents` counts the objects that were created on the
/// way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "camelCase")]
pub(super) enum Entry {
    Arguments {
        at: String,
        shape: ListFormat,
        #[serde(default, skip_serializing_if = "is_zero")]
        parents: usize,
        /// The list became empty, so its field was removed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        emptied: bool,
        #[serde(flatten)]
        edit: Edit,
    },
    /// A field. A missing side stands for a missing field.
    Field {
        at: String,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        was: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        now: Option<Value>,
        #[serde(default, skip_serializing_if = "is_zero")]
        parents: usize,
    },
    /// An element at the end of a list.
    Element {
        at: String,
        now: Value,
        #[serde(default, skip_serializing_if = "is_zero")]
        parents: usize,
    },
    Text {
        at: String,
        lines: Vec<LineEdit>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A null is a value, not a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The object, its changes and their reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    pub value: Value,
    pub entries: Vec<Entry>,
    pub reasons: Vec<String>,
    /// For the client.
    pub warnings: Vec<String>,
    /// Reasons for unchanged fields.
    pub notes: Vec<String>,
    /// Flags with which a component does not start. They matter only while the phase leaves them there.
    pub fatal: Vec<String>,
}

impl Document {
    /// The object before the recorded changes, as far as their new values are still there.
    pub fn restored(object: &Value, entries: &[Entry]) -> Self {
        let mut value = object.clone();
        let mut last = entries;
        while let Some((entry, before)) = last.split_last() {
            // All edits of one list are undone together, or none.
            let same = |other: &&Entry| entry.is_arguments_at(other);
            let group = 1 + before.iter().rev().take_while(same).count();
            let (rest, group) = last.split_at(last.len() - group);
            if work::take(undo_steps(&value, group)).is_err() {
                break;
            }
            // The owner has written another value since; keep it.
            let _kept: Option<()> = take_back(&mut value, group);
            last = rest;
        }

        Self {
            value,
            ..Self::default()
        }
    }

    /// The value at the path; none if missing or null.
    pub fn get(&self, path: &Path) -> Option<&Value> {
        find(&self.value, path)
    }

    /// Sets a field and creates missing objects on the way. Does nothing if the field has that value.
    ///
    /// # Errors
    /// When a value on the way is not an object; nothing is changed then.
    pub fn set(&mut self, path: &Path, new: Value, why: impl Into<String>) -> Result<(), NotAnObject> {
        let was = self.value.pointer(path.pointer().as_str()).cloned();
        if was.as_ref() == Some(&new) {
            return Ok(());
        }

        self.open(path);

        let parents = write(&mut self.value, path, new.clone())?;
        self.entries.push(Entry::Field {
            at: path.pointer().to_string(),
            was,
            now: Some(new),
            parents,
        });
        self.reasons.push(why.into());

        Ok(())
    }

    /// Replaces a null on the way to a field by an empty object. The null has an entry of its own, so that it is
    /// restored.
    fn open(&mut self, path: &Path) {
        let keys: Vec<&str> = path.keys().collect();
        for depth in 1..keys.len() {
            let parent = Path::new(keys.get(..depth).unwrap_or_default());
            let at = parent.pointer().to_string();
            let Some(null) = self.value.pointer_mut(&at).filter(|value| value.is_null()) else {
                continue;
            };

            *null = json!({});
            self.entries.push(Entry::Field {
                at,
                was: Some(Value::Null),
                now: Some(json!({})),
                parents: 0,
            });
        }
    }

    /// Appends an element to a list; creates a missing list.
    ///
    /// # Errors
    /// When a value on the way is not an object, or the field is not a list; nothing is changed then.
    pub fn push(&mut self, path: &Path, new: Value, why: impl Into<String>) -> Result<(), NotAnObject> {
        self.open(path);

        let parents = append(&mut self.value, path, new.clone())?;
        self.entries.push(Entry::Element {
            at: path.pointer().to_string(),
            now: new,
            parents,
        });
        self.reasons.push(why.into());

        Ok(())
    }

    pub fn warn(&mut self, warning: String) {
        add_once(&mut self.warnings, warning);
    }

    pub fn note(&mut self, note: String) {
        add_once(&mut self.notes, note);
    }

    pub fn note_fatal(&mut self, warning: String) {
        add_once(&mut self.fatal, warning);
    }

    /// Reads the argument list at the path; an empty one if the field is missing.
    ///
    /// # Errors
    /// When the field holds no such list.
    pub fn arguments(&self, path: &Path, shape: ListFormat) -> Result<CommandLine, Unfit> {
        shape.read(self.get(path), path)
    }

    /// Writes back an argument list that [`Self::arguments`] has read. An empty list is removed with its field: some
    /// APIs require at least one item. APIs with lists of `{name, value}` also require at least one field in each
    /// object, so there the empty parent objects are removed too.
    ///
    /// # Errors
    /// When something on the way is no object.
    pub fn set_arguments(
        &mut self,
        path: &Path,
        shape: ListFormat,
        line: &CommandLine,
        reasons: impl IntoIterator<Item = String>,
    ) -> Result<(), NotAnObject> {
        if line.edits().is_empty() {
            return Ok(());
        }

        let found = self.get(path);
        let written = shape.write(found, line);
        let as_it_stands = self.value.pointer(path.pointer().as_str());
        if as_it_stands.is_some_and(|value| value.is_string() || value.is_null()) {
            // The field was a string or null and becomes a list, so only the whole field can be undone.
            let reasons: Vec<String> = reasons.into_iter().collect();
            return self.set(path, written, reasons.join("; "));
        }

        self.open(path);

        let emptied = line.items().is_some_and(<[String]>::is_empty);
        let parents = if emptied {
            take(&mut self.value, path);
            prune(
                &mut self.value,
                path,
                if shape == ListFormat::Named { usize::MAX } else { 0 },
            );
            0
        } else {
            write(&mut self.value, path, written)?
        };

        self.entries
            .extend(line.edits().iter().enumerate().map(|(number, edit)| Entry::Arguments {
                at: path.pointer().to_string(),
                shape,
                parents: if number == 0 { parents } else { 0 },
                emptied,
                edit: edit.clone(),
            }));

        self.reasons.extend(reasons);

        Ok(())
    }

    /// Writes back an edited YAML text.
    ///
    /// # Errors
    /// When something on the way is no object.
    pub fn set_text(
        &mut self,
        path: &Path,
        text: &YamlText,
        reasons: impl IntoIterator<Item = String>,
    ) -> Result<(), NotAnObject> {
        if text.edits().is_empty() {
            return Ok(());
        }

        write(&mut self.value, path, json!(text.text()))?;
        self.entries.push(Entry::Text {
            at: path.pointer().to_string(),
            lines: text.edits().to_vec(),
        });
        self.reasons.extend(reasons);

        Ok(())
    }
}

/// Steps to undo a change, or the changes of one list, whose items are read and compared.
fn undo_steps(value: &Value, group: &[Entry]) -> usize {
    let Some(
        Entry::Field { at, .. } | Entry::Element { at, .. } | Entry::Text { at, .. } | Entry::Arguments { at, .. },
    ) = group.first()
    else {
        return 0;
    };

    let length = match value.pointer(at) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::String(text)) => text.len() / 128,
        _ => 1,
    };
    (20 * length).saturating_add(50).saturating_mul(group.len())
}

fn add_once(texts: &mut Vec<String>, text: String) {
    if work::take(texts.len() + 20).is_ok() && !texts.contains(&text) {
        texts.push(text);
    }
}

impl Entry {
    fn is_arguments_at(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Arguments { at, .. }, Self::Arguments { at: there, .. }) if at == there)
    }
}

/// Undoes a change, or the changes of one list. None when their new values are not there any more.
fn take_back(value: &mut Value, group: &[Entry]) -> Option<()> {
    match group {
        [Entry::Field { at, was, now, parents }] => {
            let unchanged = value.pointer(at) == now.as_ref();
            unchanged.then(|| put(value, at, was.clone(), *parents))?
        }
        [Entry::Element { at, now, parents }] => {
            let list = value.pointer_mut(at)?.as_array_mut()?;
            let index = list.iter().rposition(|element| element == now)?;
            list.remove(index);
            // Creating the list counted one more object on the way.
            if list.is_empty() && *parents > 0 {
                put(value, at, None, parents - 1)?;
            }

            Some(())
        }
        [Entry::Text { at, lines }] => {
            let restored = yaml_text::undo(value.pointer(at)?.as_str()?, lines)?;
            put(value, at, Some(json!(restored)), 0)
        }
        [
            Entry::Arguments {
                at,
                shape,
                parents,
                emptied,
                ..
            },
            ..,
        ] => {
            let edit = |entry: &Entry| match entry {
                Entry::Arguments { edit, .. } => Some(edit.clone()),
                _ => None,
            };
            let edits: Vec<Edit> = group.iter().filter_map(edit).collect();
            let path = Path::parse(at)?;
            let found = find(value, &path).cloned();
            // The object may be in another version of its API since.
            let shape = shape.in_version_of(value).of(found.as_ref());
            if let Some(own) = found.as_ref().and_then(|found| shape.without_merged(found, &edits)) {
                return put(value, at, Some(own), 0);
            }

            let found = found.or_else(|| emptied.then(|| shape.empty()));
            let mut line = shape.read(found.as_ref(), &path).ok()?;
            let written = line.undo(&edits).then(|| {
                line.items()?;
                Some(shape.write(found.as_ref(), &line))
            })?;

            put(value, at, written, *parents)
        }
        _ => None,
    }
}

/// Restores an old value, or removes the field and the objects that were created on the way to it.
fn put(value: &mut Value, at: &str, was: Option<Value>, parents: usize) -> Option<()> {
    let path = Path::parse(at)?;
    match was {
        Some(was) => write(value, &path, was).ok().map(drop),
        None => {
            take(value, &path);
            prune(value, &path, parents);
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Document {
        fn finish(self) -> (Value, Vec<Entry>, Vec<String>) {
            (self.value, self.entries, self.reasons)
        }
    }

    fn path(pointer: &str) -> Path {
        Path::parse(pointer).unwrap()
    }

    fn object() -> Value {
        json!({"spec": {"args": ["a=1"], "one": "x=1", "map": {"k": "v"}, "null": null, "list": [{"name": "n", "more": 1}]}})
    }

    fn changed() -> (Value, Vec<Entry>) {
        let mut document = Document::restored(&object(), &[]);
        document.set(&path("/spec/new/deep/field"), json!(true), "why").unwrap();
        document.set(&path("/spec/new/deep/second"), json!(1), "why").unwrap();
        document.set(&path("/spec/map/k"), json!("w"), "why").unwrap();
        document.set(&path("/spec/null"), json!("w"), "why").unwrap();
        document.set(&path("/spec/list/0/name"), json!("m"), "why").unwrap();
        document.push(&path("/spec/pool/names"), json!("c"), "why").unwrap();
        document.push(&path("/spec/args"), json!("b=2"), "why").unwrap();
        let (value, entries, reasons) = document.finish();
        assert_eq!(reasons.len(), 7);
        (value, entries)
    }

    #[test]
    fn every_change_is_made_and_taken_back() {
        let (value, entries) = changed();
        assert_eq!(
            value,
            json!({"spec": {"args": ["a=1", "b=2"], "one": "x=1", "map": {"k": "w"}, "null": "w", "list": [{"name": "m", "more": 1}],
                "new": {"deep": {"field": true, "second": 1}}, "pool": {"names": ["c"]}}})
        );
        let text = serde_json::to_string(&entries).unwrap();
        let read: Vec<Entry> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, entries);
        assert_eq!(Document::restored(&value, &read).finish().0, object());
    }

    #[test]
    fn a_null_on_the_way_comes_back() {
        let mut document = Document::restored(&object(), &[]);
        document.set(&path("/spec/null/deep/field"), json!(1), "why").unwrap();
        document.push(&path("/spec/null/list"), json!(1), "why").unwrap();
        let (value, entries, _) = document.finish();
        assert_eq!(value["spec"]["null"], json!({"deep": {"field": 1}, "list": [1]}));
        assert_eq!(Document::restored(&value, &entries).finish().0, object());
    }

    #[test]
    fn what_another_hand_wrote_stays() {
        let (mut value, entries) = changed();
        value["spec"]["new"]["deep"]["theirs"] = json!(1);
        value["spec"]["map"]["k"] = json!("theirs");
        value["spec"]["args"] = json!(["b=2", "z=1"]);
        let restored = Document::restored(&value, &entries).finish().0;
        assert_eq!(restored["spec"]["new"], json!({"deep": {"theirs": 1}}));
        assert_eq!(restored["spec"]["map"]["k"], "theirs");
        assert_eq!(restored["spec"]["args"], json!(["z=1"]));
        assert_eq!(restored["spec"].get("pool"), None);
    }

    #[test]
    fn nothing_is_set_below_a_text_and_nothing_is_left_half_made() {
        let mut document = Document::restored(&object(), &[]);
        let error = document
            .set(&path("/spec/one/deep/field"), json!(1), "why")
            .unwrap_err();
        assert_eq!(error.path, "/spec/one");
        assert!(document.push(&path("/spec/one"), json!(1), "why").is_err());
        assert!(document.set(&path("/spec/list/7/name"), json!(1), "why").is_err());
        let (value, entries, _) = document.finish();
        assert_eq!((value, entries), (object(), Vec::new()));
    }
}
