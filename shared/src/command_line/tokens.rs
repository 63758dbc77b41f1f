//! Tokens to flags.

use super::error::Unreadable;
use super::flag::{Flag, Kind};
use super::line::{CommandLine, Style};
use super::variables;

/// One occurrence of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence<'a> {
    /// Position of its first token in `command` followed by `args`.
    pub position: usize,
    /// One token, or two.
    pub length: usize,
    /// Everything before the value, as written: `--cloud_provider`.
    pub spelling: &'a str,
    /// The value as written; none for a boolean flag without a value.
    pub value: Option<&'a str>,
}

/// A token that has the form of a flag.
pub(super) struct Token<'a> {
    style: Style,
    pub spelling: &'a str,
    pub value: Option<&'a str>,
}

impl<'a> Token<'a> {
    /// `--name`, `--name=value`, and the same with one dash; `-` and `--` alone are none. In a list without dashes the
    /// same without them.
    pub fn parse(style: Style, token: &'a str) -> Option<Self> {
        let stripped = token.strip_prefix("--").or_else(|| token.strip_prefix('-'));
        let name = if style.item_is_flag() {
            stripped.unwrap_or(token)
        } else {
            stripped?
        };
        if name.is_empty() || name.starts_with(['-', '=']) {
            return None;
        }

        let (spelling, value) = match token.split_once('=') {
            Some((spelling, value)) => (spelling, Some(value)),
            None => (token, None),
        };
        Some(Self { style, spelling, value })
    }

    /// The name as flags are called here: no dashes in front, none of the signs with which RKE2 and K3s add to their
    /// own value, `-` between words.
    pub fn name(&self) -> String {
        let name = self.spelling.trim_start_matches('-');
        let signs: &[char] = if self.style == Style::Bare { &['+', '-'] } else { &[] };
        name.trim_end_matches(signs).replace('_', "-")
    }
}

impl CommandLine {
    /// Every occurrence of the flag, in order. `--` ends the flags of a program.
    pub(super) fn occurrences<'a>(
        &self,
        tokens: &[&'a str],
        from: usize,
        flag: Flag,
    ) -> Result<Vec<Occurrence<'a>>, Unreadable> {
        let mut found = Vec::new();
        let mut position = from;
        let end = from + self.flags_end(tokens.get(from..).unwrap_or_default());

        while let Some(text) = tokens.get(position).filter(|_| position < end) {
            let before = position.checked_sub(1).filter(|before| *before >= from);
            variables::check(before.and_then(|before| tokens.get(before).copied()), text)?;
            let Some(token) = Token::parse(self.style, text).filter(|token| token.name() == flag.name) else {
                position += 1;
                continue;
            };
            if self.style == Style::Bare && token.spelling.ends_with('-') {
                return Err(Unreadable::Prepended {
                    flag: flag.name.to_owned(),
                    item: (*text).to_owned(),
                });
            }

            let (length, value) = match (flag.kind, token.value) {
                (_, Some(value)) => (1, Some(value)),
                (Kind::Boolean, None) => (1, None),
                (Kind::Text, None) if self.style.item_is_flag() => return Err(no_value(flag)),
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

    /// How many of the component's own words can be flags: `--` ends them.
    pub(super) fn flags_end(&self, own: &[&str]) -> usize {
        let end = own.iter().position(|token| *token == "--");
        end.filter(|_| !self.style.item_is_flag()).unwrap_or(own.len())
    }
}

/// The token after a flag. The components take whatever stands there as the value, even `--other=1`; nobody means that
/// with the flags that rules are about, so it is not touched but reported.
fn value_token<'a>(tokens: &[&'a str], position: usize, flag: Flag) -> Result<&'a str, Unreadable> {
    match tokens.get(position + 1) {
        Some(value) if !value.starts_with('-') => Ok(value),
        _ => Err(no_value(flag)),
    }
}

fn no_value(flag: Flag) -> Unreadable {
    Unreadable::NoValue {
        flag: flag.name.to_owned(),
    }
}
