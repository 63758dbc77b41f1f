//! Undoing: what was taken out of a command line and put in, with its place, so that it can be taken back.
//!
//! Between our change and its undoing the object's owner may have written it again. So edits are taken back only while
//! everything that they put in is still there, wherever it stands by then, and nothing that they took out has come back.

use super::line::{CommandLine, Edit};
use super::tokens::Token;

impl CommandLine {
    /// Takes edits back, the last one first. Without another hand in between, this gives the original lists byte for
    /// byte. Returns false, and changes nothing, when another hand has rewritten what the edits were about: what is
    /// there now is then its owner's own. Forgets the edits that were made on this value.
    #[must_use]
    pub fn undo(&mut self, edits: &[Edit]) -> bool {
        // A flag that was taken out and put in again is there by these edits themselves.
        let put_in = |flag: &str| edits.iter().any(|edit| edit.flag == flag && !edit.now.is_empty());
        let set_again = edits
            .iter()
            .any(|edit| edit.now.is_empty() && !put_in(&edit.flag) && self.has(&edit.flag));
        let mut restored = self.clone();
        let done = !set_again && edits.iter().rev().all(|edit| restored.take_back(edit));
        if done {
            *self = restored;
            // What came back may have variables.
            self.expand();
        }
        self.edits.clear();
        done
    }

    fn take_back(&mut self, edit: &Edit) -> bool {
        match (edit.json, self.wrapped()) {
            (false, Ok(None)) => self.take_back_here(edit),
            (true, Ok(Some(mut wrapped))) => {
                let done = wrapped.inner.take_back_here(edit);
                self.put(&wrapped);
                done
            }
            // Its owner starts it in another way by now.
            _ => false,
        }
    }

    fn take_back_here(&mut self, edit: &Edit) -> bool {
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

    /// Whether the flag stands among the component's own flags, whatever its value.
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

/// Where the tokens stand: at the index, else nearest to it.
fn find(tokens: &[String], wanted: &[String], index: usize) -> Option<usize> {
    let places = tokens
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted);
    places.map(|(place, _)| place).min_by_key(|place| place.abs_diff(index))
}
