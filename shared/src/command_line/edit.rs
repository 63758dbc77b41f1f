//! Changes of a command line. All other tokens stay unchanged, byte for byte.

use super::error::Unreadable;
use super::flag::Flag;
use super::line::{CommandLine, Edit, List, Style};

impl CommandLine {
    /// Gives the flag a value: the last occurrence is changed in its own style and place; a flag that is not there is
    /// added at the end of the flags. Does nothing if it has that value.
    ///
    /// # Errors
    /// When the command line cannot be read.
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
            Edit::replace(list, index, flag, was, now)
        } else {
            // The flag ends `command` and its value begins `args`: only the value changes.
            let last_of = |tokens: Vec<String>| tokens.into_iter().skip(1).collect();
            Edit::replace(value_list, value_index, flag, last_of(was), last_of(now))
        };

        self.apply(edit);

        Ok(())
    }

    /// Removes every occurrence of the flag.
    ///
    /// # Errors
    /// When the command line cannot be read.
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
                    Edit::remove(list, index, flag, written.get(position).copied().unwrap_or_default())
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
        self.apply(Edit::add(list, index, flag, now, created));

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
}
