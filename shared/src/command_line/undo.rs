//! Undoes edits of a command line.
//!
//! Between an edit and its undoing the object's owner may have changed the object. So edits are undone only while all
//! tokens that they added are still there, at any position, and no flag that they removed was added again.

use super::line::{CommandLine, Edit};
use super::tokens::Token;

impl CommandLine {
    /// Undoes edits, the last one first. If nothing else changed the lists, this gives the original lists byte for
    /// byte. Returns false, and changes nothing, if the owner has changed the tokens of the edits: they are then the
    /// owner's. Clears the edits of this value.
    #[must_use]
    pub fn undo(&mut self, edits: &[Edit]) -> bool {
        // A flag that was taken out and put in again is there by these edits themselves.
        let put_in = |flag: &str| edits.iter().any(|edit| edit.flag == flag && !edit.now.is_empty());
        let set_again = edits
            .iter()
            .any(|edit| edit.now.is_empty() && !put_in(&edit.flag) && self.has(&edit.flag));
        let mut restored = self.clone();
        let done = !set_again && edits.iter().rev().all(|edit| restored.undo_edit(edit));

        if done {
            *self = restored;
            // Restored tokens may have variables.
            self.expand();
        }

        self.edits.clear();

        done
    }

    fn undo_edit(&mut self, edit: &Edit) -> bool {
        match (edit.json, self.wrapped()) {
            (false, Ok(None)) => self.undo_edit_here(edit),
            (true, Ok(Some(mut wrapped))) => {
                let done = wrapped.inner.undo_edit_here(edit);
                self.put(&wrapped);
                done
            }
            // The owner has changed how the container starts.
            _ => false,
        }
    }

    fn undo_edit_here(&mut self, edit: &Edit) -> bool {
        let list = self.list_mut(edit.list);
        let Some(tokens) = list else { return false };
        let place = if edit.now.is_empty() {
            Some(edit.index.min(tokens.len()))
        } else {
            find(tokens, &edit.now, edit.index)
        };
        let Some(at) = place else { return false };
        tokens.splice(at..at + edit.now.len(), edit.was.iter().cloned());
        if edit.created && tokens.is_empty() {
            *list = None;
        }

        true
    }

    /// Whether the component has the flag, with any value.
    fn has(&self, flag: &str) -> bool {
        match self.wrapped() {
            Ok(None) => self.has_here(flag),
            Ok(Some(wrapped)) => wrapped.inner.has_here(flag),
            Err(_) => false,
        }
    }

    fn has_here(&self, flag: &str) -> bool {
        let Ok(located) = self.locate_outside() else {
            return false;
        };

        let tokens = self.tokens();
        let own = tokens.get(located.flags_from..).unwrap_or_default();
        let flags = own.get(..self.flags_end(own)).unwrap_or_default();
        let mut names = flags.iter().filter_map(|token| Token::parse(self.style, token));

        names.any(|token| token.name() == flag)
    }
}

/// The place of the tokens nearest to the index.
fn find(tokens: &[String], wanted: &[String], index: usize) -> Option<usize> {
    let places = tokens
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted);
    places.map(|(place, _)| place).min_by_key(|place| place.abs_diff(index))
}
