//! A variable with flags in an environment file of systemd, edited in place.
//!
//! systemd splits `$VARIABLE` of `ExecStart` at spaces, and reads quotes and backslashes. A value is edited only where a
//! space is always the end of a flag.
//! <https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=>

use std::ops::Range;

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
    /// Finds a variable; none if the file does not set it.
    ///
    /// # Errors
    /// The reason and the fix, where a value cannot be edited safely.
    pub fn find(text: &str, name: &str) -> Result<Option<Self>, String> {
        let mut found = None;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let at = start;
            start += line.len();
            let content = line.trim_ascii_end();
            if content.trim_ascii_start().is_empty() || content.trim_ascii_start().starts_with(['#', ';']) {
                continue;
            }
            if content.ends_with('\\') {
                return Err("a line ends in \\ and continues on the next; write it as one line".to_owned());
            }

            let Some((key, value)) = content.split_once('=') else {
                continue;
            };
            if key.trim() != name {
                continue;
            }
            if found.is_some() {
                return Err(format!("{name} is set twice; remove one"));
            }

            let end = at + content.len();
            found = Some(Self::read(text, end - value.len()..end, name)?);
        }

        Ok(found)
    }

    fn read(text: &str, range: Range<usize>, name: &str) -> Result<Self, String> {
        let written = text.get(range.clone()).unwrap_or_default();
        let start = range.end - written.trim_ascii_start().len();
        let written = written.trim_ascii_start();
        let quoted = |quote: char| written.strip_prefix(quote)?.strip_suffix(quote);
        let (value, from) = match quoted('"').or_else(|| quoted('\'')) {
            Some(value) => (value, start + 1),
            None => (written, start),
        };
        if value.contains(['"', '\'', '\\', '$', '`']) {
            return Err(format!(
                "{name} has a quote, a backslash or a variable in its value, so its flags cannot be determined; \
                 write the value without these"
            ));
        }

        let (mut flags, mut rest) = (Vec::new(), value);
        loop {
            let trimmed = rest.trim_ascii_start();
            if trimmed.is_empty() {
                break;
            }
            let spaces = rest.get(..rest.len() - trimmed.len()).unwrap_or_default();
            let end = trimmed
                .find(|letter: char| letter.is_ascii_whitespace())
                .unwrap_or(trimmed.len());
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

    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(|spaced| spaced.flag.as_str())
    }

    /// The text with other flags: one for each present flag, none where it is removed, and added ones.
    pub fn with(&self, text: &str, kept: &[Option<String>], added: &[String]) -> String {
        let first_spaces = self.flags.first().map_or("", |spaced| spaced.spaces.as_str());
        let mut value = String::new();
        let kept = self.flags.iter().zip(kept);
        let kept = kept.filter_map(|(spaced, flag)| Some((spaced.spaces.as_str(), flag.as_ref()?)));
        for (spaces, flag) in kept.chain(added.iter().map(|flag| (" ", flag))) {
            value.push_str(if value.is_empty() { first_spaces } else { spaces });
            value.push_str(flag);
        }

        let before = text.get(..self.value.start).unwrap_or_default();
        let behind = text.get(self.value.end..).unwrap_or_default();
        [before, &value, &self.tail, behind].concat()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail")]

    use proptest::prelude::*;

    use super::*;

    fn changed(text: &str, change: fn(&str) -> Option<String>, added: &[&str]) -> String {
        let variable = Variable::find(text, "ARGS").unwrap().unwrap();
        let kept: Vec<Option<String>> = variable.flags().map(change).collect();
        let added: Vec<String> = added.iter().map(|flag| (*flag).to_owned()).collect();
        variable.with(text, &kept, &added)
    }

    fn same(flag: &str) -> Option<String> {
        Some(flag.to_owned())
    }

    #[test]
    fn an_unchanged_value_keeps_every_byte() {
        for text in [
            "ARGS=\"--a=b  --c d \"\n",
            "# x\n\n  ARGS = '--a=b'\r\nOTHER=1",
            "ARGS=",
            "ARGS=\"\"\n",
            "ARGS=--a=b --c=d",
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
    }

    proptest! {
        /// A value that is read is one that systemd splits in the same way, and writing it changes only its flags.
        #[test]
        fn only_flags_change(text in "((#|;|A|ARGS|=|\"|'|--a=1|--b| |  |\t|\\\\|\\$|ä|\r)*\n?){1,4}") {
            let Ok(Some(variable)) = Variable::find(&text, "ARGS") else { return Ok(()) };
            let flags: Vec<String> = variable.flags().map(str::to_owned).collect();
            let kept: Vec<Option<String>> = flags.iter().cloned().map(Some).collect();
            prop_assert_eq!(variable.with(&text, &kept, &[]), text.clone());

            let added = variable.with(&text, &kept, &["--new".to_owned()]);
            let again = Variable::find(&added, "ARGS").unwrap().unwrap();
            prop_assert_eq!(again.flags().collect::<Vec<_>>(), [&flags[..], &["--new".to_owned()]].concat());
            let removed = again.with(&added, &[&kept[..], &[None]].concat(), &[]);
            let again = Variable::find(&removed, "ARGS").unwrap().unwrap();
            prop_assert_eq!(again.flags().collect::<Vec<_>>(), flags);
        }
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        assert_eq!(Variable::find("#ARGS=1\n;ARGS=2\nMY_ARGS=3\n", "ARGS"), Ok(None));
        for (text, said) in [
            ("ARGS=--a \\\n--b\n", "continues on the next"),
            ("ARGS=--a\nARGS=--b\n", "is set twice"),
            ("ARGS=\"--a='b c'\"\n", "has a quote"),
            ("ARGS=\"--a\n--b\"\n", "has a quote"),
            ("ARGS=--a=$HOME\n", "a variable"),
        ] {
            let error = Variable::find(text, "ARGS").unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
