//! Several edits with one verification.
//!
//! The positions of the parsed text stay valid for all edits of a batch, as long as no edit needs the result of an
//! earlier one; then the earlier ones are verified first. The text is parsed once at the end, not once for each edit.

use std::sync::Arc;

use serde_json::Value;

use super::{Refusal, YamlText, child_mut, lines, put, take};
use crate::work;

/// Steps per byte of a text whose values are copied for the first edit.
const STEPS_PER_COPIED_BYTE: usize = 3;

/// A replacement of a range of bytes of the parsed text.
#[derive(Clone, Debug)]
pub(super) struct Splice {
    pub from: usize,
    pub to: usize,
    pub new: String,
}

impl Splice {
    pub const fn new(from: usize, to: usize, new: String) -> Self {
        Self { from, to, new }
    }

    /// The same replacement without the bytes at both ends that stay equal.
    pub fn trimmed(self, text: &str) -> Self {
        let old = text.get(self.from..self.to).unwrap_or_default();
        let (front, back) = lines::common(old, &self.new);
        let new = self.new.get(front..self.new.len() - back).unwrap_or_default();
        Self::new(self.from + front, self.to - back, new.to_owned())
    }

    /// The place in the text after `earlier`, which replaced another range.
    fn moved_by(&self, earlier: &Self) -> isize {
        if earlier.from > self.from {
            return 0;
        }
        earlier.new.len().cast_signed() - (earlier.to - earlier.from).cast_signed()
    }
}

/// The effect of an edit on the value of the document.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Put(Value),
    /// An item of a list, before the one at this index.
    Insert(usize, Value),
    Take,
}

/// An edit of a batch that is not verified yet.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    document: usize,
    path: Vec<String>,
    change: Change,
    splice: Splice,
    /// It adds an item or an entry behind the last one of the list or map at this path.
    appends_to: Option<Vec<String>>,
    /// The items of the list at this path have other indices after it.
    moves_items_of: Option<Vec<String>>,
    /// Returned if the edit has another effect than intended.
    refusal: Refusal,
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|key| (*key).to_owned()).collect()
}

impl Edit {
    pub fn new(document: usize, path: &[&str], change: Change, splice: Splice, refusal: Refusal) -> Self {
        Self {
            document,
            path: owned(path),
            change,
            splice,
            appends_to: None,
            moves_items_of: None,
            refusal,
        }
    }

    pub fn at_end_of(self, path: &[&str]) -> Self {
        Self {
            appends_to: Some(owned(path)),
            ..self
        }
    }

    pub fn moving_items_of(self, path: &[&str]) -> Self {
        Self {
            moves_items_of: Some(owned(path)),
            ..self
        }
    }

    /// Whether its place in the parsed text is wrong after `earlier`.
    fn needs(&self, earlier: &Self) -> bool {
        let moved = earlier
            .moves_items_of
            .as_ref()
            .filter(|_| earlier.document == self.document);
        if moved.is_some_and(|list| self.path.len() > list.len() && self.path.starts_with(list)) {
            return true;
        }

        let (own, other) = (&self.splice, &earlier.splice);
        let is_same_end =
            self.appends_to.is_some() && self.appends_to == earlier.appends_to && self.document == earlier.document;
        match (own.from == own.to, other.from == other.to) {
            (true, true) => own.from == other.from && !is_same_end,
            // Behind the range is no conflict: an item is added behind one that got another text.
            (true, false) => (other.from..other.to).contains(&own.from),
            (false, true) => (own.from..own.to).contains(&other.from),
            (false, false) => own.from < other.to && other.from < own.to,
        }
    }

    fn apply(&self, documents: &mut [Value]) -> bool {
        let Some(value) = documents.get_mut(self.document) else {
            return false;
        };

        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match &self.change {
            Change::Put(new) => put(value, &path, new.clone()),
            Change::Take => take(value, &path).is_some(),
            Change::Insert(index, new) => {
                let list = path.iter().try_fold(value, |here, key| child_mut(here, key));
                let Some(Value::Array(list)) = list else { return false };
                list.insert((*index).min(list.len()), new.clone());
                true
            }
        }
    }
}

impl YamlText {
    /// Makes several edits with one verification at the end, all or none of them.
    ///
    /// # Errors
    /// When `change` fails, or when an edit has another effect than intended; nothing is changed then.
    pub fn batch<T, E: From<Refusal>>(&mut self, change: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        if self.is_batch {
            return change(self);
        }

        let before = self.clone();
        self.is_batch = true;
        let result = change(self).and_then(|result| {
            self.verify()?;
            Ok(result)
        });

        match result {
            Ok(result) => {
                self.is_batch = false;
                Ok(result)
            }
            Err(error) => {
                *self = before;
                Err(error)
            }
        }
    }

    /// Adds an edit to the batch, or makes a batch of it. `find` computes its place in the parsed text.
    pub(super) fn edit(&mut self, find: impl Fn(&Self) -> Result<Edit, Refusal>) -> Result<(), Refusal> {
        self.batch(|text| {
            // Searching the place reads the text a few times, but allocates nothing of its size.
            work::take(text.text.len() / 8 + 50)?;
            let mut edit = find(text);
            let is_outdated = match &edit {
                Ok(edit) => text.pending.iter().any(|earlier| edit.needs(earlier)),
                Err(_) => !text.pending.is_empty(),
            };
            if is_outdated {
                text.verify()?;
                edit = find(text);
            }

            let edit = edit?;
            if Arc::strong_count(&text.documents) > 1 {
                work::take(STEPS_PER_COPIED_BYTE * text.read_bytes)?;
            }
            let documents: &mut Vec<Value> = Arc::make_mut(&mut text.documents);
            if !edit.apply(documents) {
                return Err(edit.refusal);
            }
            text.pending.push(edit);

            Ok(())
        })
    }

    /// Accepts the edits of the batch if the new text has the intended changes and no others.
    fn verify(&mut self) -> Result<(), Refusal> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }

        let (text, edits) = self.spliced(&pending)?;
        match self.parse_again(&text) {
            Ok(read) if read.documents == self.documents => self.accept(read, edits),
            Err(Refusal::Work(exceeded)) => return Err(exceeded.into()),
            _ => self.verify_each(pending)?,
        }

        Ok(())
    }

    fn parse_again(&self, text: &str) -> Result<Self, Refusal> {
        Self::parse_where(text, self.word.as_deref())
    }

    fn accept(&mut self, read: Self, edits: Vec<lines::LineEdit>) {
        let mut all = std::mem::take(&mut self.edits);
        all.extend(edits);
        *self = Self {
            edits: all,
            is_batch: self.is_batch,
            ..read
        };
    }

    /// Verifies edits one after the other, to find the one to refuse.
    fn verify_each(&mut self, pending: Vec<Edit>) -> Result<(), Refusal> {
        let mut intended = Vec::clone(&self.parse_again(&self.text)?.documents);
        for (number, edit) in pending.iter().enumerate() {
            edit.apply(&mut intended);
            let (text, edits) = self.spliced(pending.get(..=number).unwrap_or_default())?;
            let is_last = number + 1 == pending.len();
            match self.parse_again(&text) {
                Ok(read) if *read.documents == intended => {
                    if is_last {
                        self.accept(read, edits);
                    }
                }
                Err(Refusal::Work(exceeded)) => return Err(exceeded.into()),
                _ => return Err(edit.refusal.clone()),
            }
        }

        Ok(())
    }

    /// The text with the edits, and the lines that each of them changes.
    fn spliced(&self, pending: &[Edit]) -> Result<(String, Vec<lines::LineEdit>), Refusal> {
        let mut text = self.text.clone();
        let mut edits = Vec::new();
        for (number, edit) in pending.iter().enumerate() {
            work::take(text.len() / 32 + number + 20)?;

            let splice = &edit.splice;
            let earlier = pending.get(..number).unwrap_or_default();
            let moved: isize = earlier.iter().map(|earlier| splice.moved_by(&earlier.splice)).sum();
            let range = splice
                .from
                .checked_add_signed(moved)
                .zip(splice.to.checked_add_signed(moved));
            let parts = range.and_then(|(from, to)| Some((text.get(..from)?, text.get(to..)?)));
            let (front, back) = parts.ok_or_else(|| edit.refusal.clone())?;

            let new = [front, &splice.new, back].concat();
            edits.extend(lines::between(&text, &new));
            text = new;
        }

        Ok((text, edits))
    }
}
