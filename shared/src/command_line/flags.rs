//! Tokens to flags.

use super::{CommandLine, Flag, Kind, Unreadable};

/// One place where a flag stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence<'a> {
    /// Position of its first token in `command` followed by `args`.
    pub position: usize,
    /// One token, or two.
    pub length: usize,
    /// Everything before the value, as written: `--cloud_provider`.
    pub spelling: &'a str,
    /// The value as written; none for a boolean flag that stands alone.
    pub value: Option<&'a str>,
}

/// A token that has the form of a flag.
pub(super) struct Token<'a> {
    pub spelling: &'a str,
    pub value: Option<&'a str>,
}

impl<'a> Token<'a> {
    /// `--name`, `--name=value`, and the same with one dash. `-` and `--` alone are none.
    pub fn parse(token: &'a str) -> Option<Self> {
        let name = token.strip_prefix("--").or_else(|| token.strip_prefix('-'))?;
        if name.is_empty() || name.starts_with(['-', '=']) {
            return None;
        }
        let (spelling, value) = match token.split_once('=') {
            Some((spelling, value)) => (spelling, Some(value)),
            None => (token, None),
        };
        Some(Self { spelling, value })
    }

    fn is(&self, flag: Flag) -> bool {
        let name = self.spelling.trim_start_matches('-');
        name.len() == flag.name.len()
            && name
                .bytes()
                .zip(flag.name.bytes())
                .all(|(ours, theirs)| ours == theirs || (ours == b'_' && theirs == b'-'))
    }
}

impl CommandLine {
    /// Every place where the flag stands, in order. `--` ends the flags.
    pub(super) fn occurrences<'a>(
        tokens: &[&'a str],
        from: usize,
        flag: Flag,
    ) -> Result<Vec<Occurrence<'a>>, Unreadable> {
        let mut found = Vec::new();
        let mut position = from;
        while let Some(text) = tokens.get(position).filter(|text| **text != "--") {
            let Some(token) = Token::parse(text).filter(|token| token.is(flag)) else {
                position += 1;
                continue;
            };
            let (length, value) = match (flag.kind, token.value) {
                (_, Some(value)) => (1, Some(value)),
                (Kind::Boolean, None) => (1, None),
                (Kind::Text, None) => (2, Some(value_token(tokens, position, flag)?)),
            };
            found.push(Occurrence {
                position,
                length,
                spelling: token.spelling,
                value,
            });
            position += length;
        }
        Ok(found)
    }
}

/// The token after a flag. The components take whatever stands there as the value, even `--other=1`; nobody means that
/// with the flags that rules are about, so it is not touched but reported.
fn value_token<'a>(tokens: &[&'a str], position: usize, flag: Flag) -> Result<&'a str, Unreadable> {
    match tokens.get(position + 1) {
        Some(value) if !value.starts_with('-') => Ok(value),
        _ => Err(Unreadable::NoValue {
            flag: flag.name.to_owned(),
        }),
    }
}
