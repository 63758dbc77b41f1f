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

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

mod batch;
mod cache;
mod edit;
mod lines;
mod render;
mod sections;
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

impl Refusal {
    /// The parser counts lines from the start of the part.
    fn in_part(self, text: &str, start: usize) -> Self {
        match self {
            Self::Syntax(message) if start > 0 => {
                let before = text.get(..start).unwrap_or_default();
                let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
                Self::Syntax(format!("in the document of line {line}, counted from there: {message}"))
            }
            other => other,
        }
    }
}

/// A YAML text of one or several documents, under change. An edit is refused where the text cannot be edited; the text is
/// unchanged then.
#[derive(Clone, Debug)]
pub struct YamlText {
    text: String,
    /// Only documents with it are read.
    word: Option<String>,
    /// Bytes of these documents.
    read_bytes: usize,
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
        Self::parse_where(text, None)
    }

    /// Reads only the documents whose text contains `word`. The others do not count, and are neither checked nor changed,
    /// so they may be as long as they are.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_documents_with(text: &str, word: &str) -> Result<Self, Refusal> {
        Self::parse_where(text, Some(word))
    }

    fn parse_where(text: &str, word: Option<&str>) -> Result<Self, Refusal> {
        if text.len() > MAX_BYTES {
            return Err(Refusal::TooLong(text.len()));
        }
        if let Some(known) = cache::get(text, word) {
            work::take(text.len() / 8 + 50)?;
            return Ok(known);
        }

        let (mut documents, mut roots, mut read_bytes) = (Vec::new(), Vec::new(), 0);
        for part in Self::parts(text, word)? {
            read_bytes += part.len();
            let own = text.get(part.clone()).unwrap_or_default();
            let (values, nodes) = parse_part(own).map_err(|refusal| refusal.in_part(text, part.start))?;
            documents.extend(values);
            roots.extend(nodes.into_iter().map(|node| node.moved_by(part.start)));
        }

        let parsed = Self {
            text: text.to_owned(),
            word: word.map(str::to_owned),
            read_bytes,
            documents: Arc::new(documents),
            roots: Arc::new(roots),
            edits: Vec::new(),
            pending: Vec::new(),
            is_batch: false,
        };
        cache::put(&parsed);

        Ok(parsed)
    }

    /// The parts of the text to read.
    fn parts(text: &str, word: Option<&str>) -> Result<Vec<Range<usize>>, Refusal> {
        let Some(word) = word else {
            return Ok(std::iter::once(0..text.len()).collect());
        };

        work::take(text.len() / 8 + 50)?;
        let mut parts = sections::sections(text);
        parts.retain(|part| text.get(part.clone()).is_some_and(|own| own.contains(word)));

        Ok(parts)
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

fn parse_part(text: &str) -> Result<(Vec<Value>, Vec<Node>), Refusal> {
    work::take(STEPS_PER_BYTE * text.len() + 60)?;

    let roots = tree::documents(text)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        // The decoder's message has several lines with an excerpt; the first line is sufficient.
        let message = error.to_string();
        Refusal::Syntax(message.lines().next().unwrap_or_default().to_owned())
    })?;
    if roots.len() != documents.len() {
        return Err(Refusal::Syntax("its documents cannot be told apart".to_owned()));
    }

    Ok((documents, roots))
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
