//! Changes of a command line, and how they are undone. All other tokens stay unchanged, byte for byte.
//!
//! Between an edit and its undoing the object's owner may have changed the object. So edits are undone only while all
//! tokens that they added are still there, at any position, and no flag that they removed was added again.

use super::error::Unreadable;
use super::line::{CommandLine, Edit, Flag, List, Style};
use super::read::Token;

impl CommandLine {
    /// Gives the flag a value: the last occurrence is changed in its own style and place; a flag that is not there is
    /// added at the end of the flags. Does nothing if it has that value.
    pub fn set(&mut self, flag: Flag, value: &str) -> Result<(), Unreadable> {
        if let Some(wrapped) = self.wrapped()? {
            return self.change_wrapped(wrapped, |inner| inner.set(flag, value));
        }
        if self.value(flag)?.as_deref() == Some(value) {
            return Ok(());
        }

        let located = self.locate()?;
        let tokens = self.tokens();
        let occurrences = self.occurrences(&tokens, located.flags_from, flag)?;
        let Some(last) = occurrences.last() else {
            return self.add(flag, value);
        };

        let own = |text: &str| text.to_owned();
        let written = self.written_tokens();
        let old = written.get(last.position..last.position + last.length);
        let was: Vec<String> = old.unwrap_or_default().iter().map(|token| own(token)).collect();
        // Where a list has no two tokens by its nature, the flag becomes what it should have been.
        let now = if last.length == 2 && self.style.has_program() {
            vec![own(last.spelling), own(value)]
        } else {
            vec![format!("{}={value}", last.spelling)]
        };
        let (list, index) = self.place(last.position);
        let (value_list, value_index) = self.place(last.position + was.len() - 1);
        let edit = if list == value_list {
            Edit::new(list, index, flag, was, now)
        } else {
            // The flag ends `command` and its value begins `args`: only the value changes.
            let last_of = |tokens: Vec<String>| tokens.into_iter().skip(1).collect();
            Edit::new(value_list, value_index, flag, last_of(was), last_of(now))
        };

        self.apply(edit);

        Ok(())
    }

    /// Removes every occurrence of the flag.
    pub fn remove(&mut self, flag: Flag) -> Result<(), Unreadable> {
        if let Some(wrapped) = self.wrapped()? {
            return self.change_wrapped(wrapped, |inner| inner.remove(flag));
        }

        self.values(flag)?;
        loop {
            let located = self.locate()?;
            let tokens = self.tokens();
            let occurrences = self.occurrences(&tokens, located.flags_from, flag)?;
            // From the back, so that positions of the others stay what they were.
            let Some(last) = occurrences.last() else { return Ok(()) };
            let written = self.written_tokens();
            // The two tokens of one flag may stand in two lists: the flag ends `command`, its value begins `args`.
            let edits: Vec<Edit> = (last.position..last.position + last.length)
                .rev()
                .map(|position| {
                    let (list, index) = self.place(position);
                    let was = written.get(position).copied().unwrap_or_default();
                    Edit::new(list, index, flag, vec![was.to_owned()], Vec::new())
                })
                .collect();

            for edit in edits {
                self.apply(edit);
            }
        }
    }

    /// Adds the flag behind the last of the component's words, before a `--`, in the style of the list.
    fn add(&mut self, flag: Flag, value: &str) -> Result<(), Unreadable> {
        let located = self.locate()?;
        let tokens = self.tokens();
        let own = tokens.get(located.flags_from..).unwrap_or_default();
        let length = self.flags_end(own);
        let now = self.written(flag, value, own.get(..length).unwrap_or_default());
        let (list, index) = self.end(located.flags_from + length);
        let created = self.list(list).is_none();
        self.apply(Edit {
            created,
            ..Edit::new(list, index, flag, Vec::new(), now)
        });

        Ok(())
    }

    /// The place of a new token that follows the token before `position`: in that one's list, so that a container that
    /// has all its words in `command` keeps them there.
    fn end(&self, position: usize) -> (List, usize) {
        let in_command = self.command.as_ref().map_or(0, Vec::len);
        let args_are_empty = self.args.as_ref().is_none_or(Vec::is_empty);
        let only_program = self.style == Style::Json;

        if !only_program && in_command > 0 && (position < in_command || (position == in_command && args_are_empty)) {
            (List::Command, position)
        } else {
            (List::Args, position - in_command)
        }
    }

    fn apply(&mut self, edit: Edit) {
        let tokens = self.list_mut(edit.list).get_or_insert_default();
        let from = edit.index.min(tokens.len());
        let to = (from + edit.was.len()).min(tokens.len());
        tokens.splice(from..to, edit.now.iter().cloned());
        self.edits.push(edit);
    }

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
