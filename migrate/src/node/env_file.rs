//! Environment files of systemd: what they set, and a variable with flags that is edited in place.
//!
//! systemd splits `$VARIABLE` of `ExecStart` at spaces, and reads quotes and backslashes. A value is edited only where a
//! space is always the end of a flag.
//! <https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=>; the parser is
//! `parse_env_file_internal` in `src/basic/env-file.c` of <https://github.com/systemd/systemd>.

use std::ops::Range;

use super::words::is_space;

/// `NAME=VALUE` in an environment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub name: String,
    /// As systemd reads it.
    pub value: String,
    /// The value as it is written, with its quotes.
    written: Range<usize>,
    /// systemd before 254 reads the line as part of the comment before it, which ends in a backslash.
    pub may_be_comment: bool,
}

/// Every assignment of a file, in order. The last one of a name applies.
pub(super) fn assignments(text: &str) -> Vec<Assignment> {
    let mut reader = Reader { text, at: 0 };
    let (mut found, mut may_be_comment) = (Vec::new(), false);
    loop {
        reader.skip_spaces();
        match reader.peek() {
            None => return found,
            Some('#' | ';') => may_be_comment = reader.comment(),
            Some(_) => {
                let name = reader.name();
                found.extend(name.map(|name| reader.assignment(name, may_be_comment)));
                may_be_comment = false;
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.next();
        }
    }

    /// Skips a comment. Returns whether it ends in a backslash.
    fn comment(&mut self) -> bool {
        let mut last = None;
        while let Some(letter) = self.next().filter(|letter| !is_line_end(*letter)) {
            last = Some(letter);
        }

        last == Some('\\')
    }

    /// The text before `=`; none if the line ends before.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next()? {
                '=' => return Some(name.trim_end_matches(is_space).to_owned()),
                letter if is_line_end(letter) => return None,
                letter => name.push(letter),
            }
        }
    }

    fn assignment(&mut self, name: String, may_be_comment: bool) -> Assignment {
        let from = self.at;
        let value = self.value();
        let line = self.text.get(from..self.at).unwrap_or_default();
        let trimmed = line.trim_start_matches(is_space);
        let start = if trimmed.is_empty() {
            from
        } else {
            self.at - trimmed.len()
        };
        let end = start + trimmed.trim_end_matches(is_space).len();

        Assignment {
            name,
            value,
            written: start..end,
            may_be_comment,
        }
    }

    /// Reads a value up to the end of its last line. Quotes count only before the first other character.
    fn value(&mut self) -> String {
        let (mut value, mut is_plain, mut solid) = (String::new(), false, 0);
        while let Some(letter) = self.next().filter(|letter| !is_line_end(*letter)) {
            match letter {
                '\\' => {
                    is_plain = true;
                    value.extend(self.next().filter(|letter| !is_line_end(*letter)));
                }
                '\'' | '"' if !is_plain => self.quoted(letter, &mut value),
                _ if is_space(letter) && !is_plain => continue,
                _ if is_space(letter) => {
                    value.push(letter);
                    continue;
                }
                _ => {
                    is_plain = true;
                    value.push(letter);
                }
            }
            solid = value.len();
        }

        value.truncate(solid);
        value
    }

    fn quoted(&mut self, quote: char, value: &mut String) {
        while let Some(letter) = self.next().filter(|letter| *letter != quote) {
            if (quote, letter) != ('"', '\\') {
                value.push(letter);
                continue;
            }
            match self.next() {
                Some(escaped @ ('"' | '\\' | '`' | '$')) => value.push(escaped),
                Some('\n') | None => {}
                Some(other) => value.extend(['\\', other]),
            }
        }
    }
}

fn is_line_end(letter: char) -> bool {
    ['\n', '\r'].contains(&letter)
}

/// The value of a variable: its flags, and their place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// Without quotes.
    value: Range<usize>,
    flags: Vec<Spaced>,
    /// Spaces at the end of the value.
    tail: String,
}

/// A flag with the spaces before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spaced {
    spaces: String,
    flag: String,
}

impl Variable {
    /// The flags of an assignment.
    ///
    /// # Errors
    /// The reason and the fix, where a value cannot be edited safely.
    pub fn of(text: &str, assignment: &Assignment) -> Result<Self, String> {
        let name = &assignment.name;
        if assignment.may_be_comment {
            return Err(format!(
                "the comment before {name} ends in \\, and systemd before 254 reads the next line as a part of it; remove \
                 the \\"
            ));
        }

        Self::read(text, assignment.written.clone(), name)
    }

    fn read(text: &str, range: Range<usize>, name: &str) -> Result<Self, String> {
        let start = range.start;
        let written = text.get(range).unwrap_or_default();
        let quoted = |quote: char| written.strip_prefix(quote)?.strip_suffix(quote);
        let (value, from) = match quoted('"').or_else(|| quoted('\'')) {
            Some(value) => (value, start + 1),
            None => (written, start),
        };
        if value.contains(['"', '\'', '\\', '$', '`']) {
            return Err(format!(
                "{name} has a quote, a backslash or a variable in its value, so it is not edited; write the value on one \
                 line and without these"
            ));
        }

        let (mut flags, mut rest) = (Vec::new(), value);
        loop {
            let trimmed = rest.trim_start_matches(is_space);
            if trimmed.is_empty() {
                break;
            }
            let spaces = rest.get(..rest.len() - trimmed.len()).unwrap_or_default();
            let end = trimmed.find(is_space).unwrap_or(trimmed.len());
            let (flag, behind) = trimmed.split_at(end);
            flags.push(Spaced {
                spaces: spaces.to_owned(),
                flag: flag.to_owned(),
            });
            rest = behind;
        }

        Ok(Self {
            value: from..from + value.len(),
            flags,
            tail: rest.to_owned(),
        })
    }

    /// The place of the value, and its text with other flags: one for each present flag, none where it is removed, and
    /// added ones.
    pub fn with(&self, kept: &[Option<String>], added: &[String]) -> (Range<usize>, String) {
        let first_spaces = self.flags.first().map_or("", |spaced| spaced.spaces.as_str());
        let mut value = String::new();
        let kept = self.flags.iter().zip(kept);
        let kept = kept.filter_map(|(spaced, flag)| Some((spaced.spaces.as_str(), flag.as_ref()?)));
        for (spaces, flag) in kept.chain(added.iter().map(|flag| (" ", flag))) {
            value.push_str(if value.is_empty() { first_spaces } else { spaces });
            value.push_str(flag);
        }

        (self.value.clone(), value + &self.tail)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail")]

    use proptest::prelude::*;

    use super::*;

    fn find(text: &str) -> Option<Assignment> {
        assignments(text)
            .into_iter()
            .rfind(|assignment| assignment.name == "ARGS")
    }

    fn flags(variable: &Variable) -> impl Iterator<Item = &str> {
        variable.flags.iter().map(|spaced| spaced.flag.as_str())
    }

    fn replaced(text: &str, (place, value): (Range<usize>, String)) -> String {
        let mut text = text.to_owned();
        text.replace_range(place, &value);
        text
    }

    fn changed(text: &str, change: fn(&str) -> Option<String>, added: &[&str]) -> String {
        let variable = Variable::of(text, &find(text).unwrap()).unwrap();
        let kept: Vec<Option<String>> = flags(&variable).map(change).collect();
        let added: Vec<String> = added.iter().map(|flag| (*flag).to_owned()).collect();
        replaced(text, variable.with(&kept, &added))
    }

    fn same(flag: &str) -> Option<String> {
        Some(flag.to_owned())
    }

    #[test]
    fn values_are_those_of_systemd() {
        for (text, expected) in [
            ("#ARGS=1\n;ARGS=2\nMY_ARGS=3\nexport ARGS=4\nARGS\n", None),
            ("ARGS=1\n ARGS = two  words \r\nOTHER=3", Some("two  words")),
            ("ARGS=--a \\\n--b\n", Some("--a --b")),
            (
                "ARGS=\"--a='b c' \\\n --d=\\\"\\$e\\n\"\n",
                Some("--a='b c'  --d=\"$e\\n"),
            ),
            ("ARGS='--a\n--b\\'\n", Some("--a\n--b\\")),
            ("ARGS=\"--a\" --b \"c\" \n", Some("--a--b \"c\"")),
            ("ARGS=--a\\ \n", Some("--a ")),
            ("ARGS=\n", Some("")),
            ("ARGS=\"--a", Some("--a")),
        ] {
            let value = find(text).map(|assignment| assignment.value);
            assert_eq!(value.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_unchanged_value_keeps_every_byte() {
        for text in [
            "ARGS=\"--a=b  --c d \"\n",
            "# x\n\n  ARGS = '--a=b'\r\nOTHER=1",
            "ARGS=",
            "ARGS=\"\"\n",
            "ARGS=--a=b --c=d",
            "ARGS=\"--a\n  --b\"\n",
        ] {
            assert_eq!(changed(text, same, &[]), text);
        }
    }

    #[test]
    fn flags_are_changed_removed_and_added_in_their_place() {
        let text = "# by kubeadm\nARGS=\"--a=1  --b=2 --c=3\"\nOTHER=--b=2\n";
        let change = |flag: &str| (flag != "--a=1").then(|| flag.replace("--b=2", "--b=two"));
        assert_eq!(
            changed(text, change, &["--d=4"]),
            "# by kubeadm\nARGS=\"--b=two --c=3 --d=4\"\nOTHER=--b=2\n"
        );
        assert_eq!(changed("ARGS=\n", same, &["--d"]), "ARGS=--d\n");
        assert_eq!(changed("ARGS=\"\"\n", same, &["--d"]), "ARGS=\"--d\"\n");
        assert_eq!(changed("ARGS='--a'\n", |_| None, &[]), "ARGS=''\n");
        assert_eq!(
            changed("ARGS=--a\nARGS=--b\n", same, &["--d"]),
            "ARGS=--a\nARGS=--b --d\n"
        );
    }

    proptest! {
        /// A value that is edited is one that systemd splits in the same way, and an edit changes only its flags.
        #[test]
        fn only_flags_change(text in "((#|;|A|ARGS|=|\"|'|--a=1|--b| |  |\t|\\\\|\\$|ä|\r)*\n?){1,4}") {
            let Some(assignment) = find(&text) else { return Ok(()) };
            let Ok(variable) = Variable::of(&text, &assignment) else { return Ok(()) };
            let own: Vec<String> = flags(&variable).map(str::to_owned).collect();
            prop_assert_eq!(super::super::words::split(&assignment.value, super::super::words::Text::Variable), Ok(own.clone()));

            let kept: Vec<Option<String>> = own.iter().cloned().map(Some).collect();
            prop_assert_eq!(replaced(&text, variable.with(&kept, &[])), text.clone());

            let added = replaced(&text, variable.with(&kept, &["--new".to_owned()]));
            let again = Variable::of(&added, &find(&added).unwrap()).unwrap();
            prop_assert_eq!(flags(&again).collect::<Vec<_>>(), [&own[..], &["--new".to_owned()]].concat());
            let removed = replaced(&added, again.with(&[&kept[..], &[None]].concat(), &[]));
            let again = Variable::of(&removed, &find(&removed).unwrap()).unwrap();
            prop_assert_eq!(flags(&again).collect::<Vec<_>>(), own);
        }
    }

    #[test]
    fn what_is_not_certain_is_not_edited() {
        for (text, said) in [
            ("ARGS=--a \\\n--b\n", "a backslash"),
            ("ARGS=\"--a='b c'\"\n", "has a quote"),
            ("ARGS=\"--a\n--b\n", "has a quote"),
            ("ARGS=--a=$HOME\n", "a variable"),
            ("# --b \\\nARGS=--a\n", "ends in \\"),
        ] {
            let error = Variable::of(text, &find(text).unwrap()).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
