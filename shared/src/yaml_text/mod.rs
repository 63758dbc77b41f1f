//! YAML as text inside of objects, edited line by line: comments, order, quoting and indentation stay as their owner
//! wrote them, byte for byte.
//!
//! The parser gives the position of each value, and an edit splices the text there. **Edits are verified:** the new
//! text is parsed, and the edits are kept only if every document has exactly the intended value. Other texts are refused,
//! with the position and the text to write by hand. [`YamlText::batch`] makes several edits with one verification.
//!
//! Parsers and edits take steps from the budget of [`crate::work`], and aliases are expanded only up to a limit: a text of
//! a kilobyte can stand for millions of values.
//!
//! Each edit is kept as the lines that it changed ([`LineEdit`]), and [`undo`] takes them back while they are there.

use std::sync::Arc;

use serde_json::{Map, Value};

mod batch;
mod cache;
mod edit;
mod lines;
mod render;
mod tree;

pub use self::lines::{LineEdit, undo};
use self::{batch::Edit, tree::Node};
use crate::work::{self, WorkExceeded};

/// Longest text that is edited, in bytes. A real one has a few thousand.
pub const MAX_BYTES: usize = 256 * 1024;

/// Deepest nesting that is edited.
pub const MAX_DEPTH: usize = 64;

/// Most values that the aliases of a text stand for. Aliases of aliases double the values with each line.
pub const MAX_ALIASED: usize = 500;

/// Steps per byte of a text that is parsed, by two parsers.
const STEPS_PER_BYTE: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the text is not YAML ({0}); correct it")]
    Syntax(String),
    /// Beyond any real one.
    #[error("the text has {0} bytes, more than the {MAX_BYTES} that are edited; shorten it")]
    TooLong(usize),
    /// Beyond any real one.
    #[error("the text is nested deeper than {MAX_DEPTH} levels; flatten it")]
    TooDeep,
    #[error("the aliases of the text stand for more than {MAX_ALIASED} values; write them out")]
    Aliases,
    #[error("the text cannot be edited: {0}; shorten it")]
    Work(#[from] WorkExceeded),
    /// The text can be read, but not safely changed there.
    #[error("{at} {why}, so the text is not edited; {by_hand} by hand")]
    Place {
        at: String,
        why: &'static str,
        by_hand: String,
    },
}

/// A YAML text of one or several documents, under change. An edit is refused where the text cannot be edited; the text is
/// unchanged then.
#[derive(Clone, Debug)]
pub struct YamlText {
    text: String,
    /// Shared by copies, as the next one.
    documents: Arc<Vec<Value>>,
    roots: Arc<Vec<Node>>,
    edits: Vec<LineEdit>,
    /// Edits of the batch that are in `documents`, but not in `text` yet.
    pending: Vec<Edit>,
    is_batch: bool,
}

impl YamlText {
    /// Reads a text. Documents without content do not count.
    ///
    /// # Errors
    /// When it is no YAML, or far larger than any real one.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > MAX_BYTES {
            return Err(Refusal::TooLong(text.len()));
        }
        if let Some(known) = cache::get(text) {
            work::take(text.len() / 8 + 50)?;
            return Ok(known);
        }
        work::take(STEPS_PER_BYTE * text.len() + 200)?;

        let roots = tree::documents(text)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
            // The decoder's message has several lines with an excerpt; the first line is sufficient.
            let message = error.to_string();
            Refusal::Syntax(message.lines().next().unwrap_or_default().to_owned())
        })?;
        if roots.len() != documents.len() {
            return Err(Refusal::Syntax("its documents cannot be told apart".to_owned()));
        }

        let parsed = Self {
            text: text.to_owned(),
            documents: Arc::new(documents),
            roots: Arc::new(roots),
            edits: Vec::new(),
            pending: Vec::new(),
            is_batch: false,
        };
        cache::put(&parsed);

        Ok(parsed)
    }

    /// Without the edits of a batch that has not ended.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values of its documents, in order.
    #[must_use]
    pub fn documents(&self) -> &[Value] {
        &self.documents
    }

    /// The changes since the text was read, in order.
    #[must_use]
    pub fn edits(&self) -> &[LineEdit] {
        &self.edits
    }

    /// The value at a path: keys of maps and indices of lists, from the root of the document.
    #[must_use]
    pub fn get(&self, document: usize, path: &[&str]) -> Option<&Value> {
        let root = self.documents.get(document)?;
        path.iter().try_fold(root, |here, key| child(here, key))
    }
}

fn child<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

fn child_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(fields) => fields.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Sets the value at a path and creates missing maps; false if a value on the path is no map.
fn put(value: &mut Value, path: &[&str], new: Value) -> bool {
    let Some((key, rest)) = path.split_first() else {
        *value = new;
        return true;
    };

    if value.is_null() {
        *value = Value::Object(Map::new());
    }

    match value {
        Value::Object(fields) => put(fields.entry((*key).to_owned()).or_insert(Value::Null), rest, new),
        Value::Array(_) => child_mut(value, key).is_some_and(|next| put(next, rest, new)),
        _ => false,
    }
}

fn take(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match parents.iter().try_fold(value, |here, key| child_mut(here, key))? {
        Value::Object(fields) => fields.remove(*last),
        Value::Array(items) => {
            let index = last.parse::<usize>().ok().filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}
