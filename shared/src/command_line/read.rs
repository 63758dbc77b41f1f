//! Reads the flags of a command line.
//!
//! `$(NAME)`: the kubelet puts in the value of the container's environment variable, as a part of its token. A value that
//! the container itself gives as text is known. Everything else (Secrets, ConfigMaps, fields, Services) is only known when
//! the container starts. A whole token `$(EXTRA)` may then be any flag.

use std::sync::Arc;

use serde_json::Value;

use super::error::Unreadable;
use crate::work;

use super::line::{CommandLine, Environment, Flag, Kind, Style};

/// Steps to compare a token with a flag.
const STEPS_PER_TOKEN: usize = 8;
/// Steps to put the values of variables into a token, and to find the result later.
const STEPS_PER_EXPANSION: usize = 40;
const STEPS_PER_EXPANDED_TOKEN: usize = 15;
/// Steps to find the program and the other list.
const STEPS_PER_SCAN: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence<'a> {
    /// Position of its first token in `command` followed by `args`.
    pub position: usize,
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
    /// The flag's value, the last one if there are several, as the components read it. None if the flag is absent;
    /// `true` for a boolean flag without a value.
    ///
    /// # Errors
    /// When the command line cannot be read, or the value is only known when the container starts.
    pub fn value(&self, flag: Flag) -> Result<Option<String>, Unreadable> {
        Ok(self.values(flag)?.pop())
    }

    /// Every value of the flag, in order. Flags that hold lists (`--controllers`, `--feature-gates`) add up.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn values(&self, flag: Flag) -> Result<Vec<String>, Unreadable> {
        if let Some(wrapped) = self.wrapped()? {
            return wrapped.inner.values(flag);
        }

        let located = self.locate()?;
        let tokens = self.tokens();
        let occurrences = self.occurrences(&tokens, located.flags_from, flag)?;

        occurrences
            .into_iter()
            .map(|occurrence| literal(flag, occurrence.value.unwrap_or("true")))
            .collect()
    }

    /// A boolean flag's value; none if it is not there.
    ///
    /// # Errors
    /// As [`Self::value`], and when the value is no boolean.
    pub fn boolean(&self, flag: Flag) -> Result<Option<bool>, Unreadable> {
        let Some(value) = self.value(flag)? else {
            return Ok(None);
        };
        read_boolean(&value).map(Some).ok_or_else(|| Unreadable::NotABoolean {
            flag: flag.name.to_owned(),
            value: value.clone(),
        })
    }

    /// Every occurrence of the flag, in order. `--` ends the flags of a program.
    pub(super) fn occurrences<'a>(
        &self,
        tokens: &[&'a str],
        from: usize,
        flag: Flag,
    ) -> Result<Vec<Occurrence<'a>>, Unreadable> {
        work::take(STEPS_PER_TOKEN * tokens.len() + self.lookup_steps() + STEPS_PER_SCAN)?;

        let mut found = Vec::new();
        let mut position = from;
        let end = from + self.flags_end(tokens.get(from..).unwrap_or_default());

        while let Some(text) = tokens.get(position).filter(|_| position < end) {
            let before = position.checked_sub(1).filter(|before| *before >= from);
            check_name(before.and_then(|before| tokens.get(before).copied()), text)?;
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

    /// Steps to read each token as the component gets it.
    pub(super) fn lookup_steps(&self) -> usize {
        STEPS_PER_EXPANDED_TOKEN * self.expanded.len()
    }

    /// Expands the tokens whose variables are all known.
    pub(super) fn expand(&mut self) {
        let tokens = self.command.iter().chain(&self.args).flatten();
        let with_variables: Vec<&String> = tokens.filter(|token| token.contains("$(")).collect();
        if work::take(STEPS_PER_EXPANSION * with_variables.len()).is_err() {
            // The next scan fails, since the budget stays exceeded.
            self.expanded = Arc::default();
            return;
        }

        let expand = |token: &String| Some((token.clone(), expanded(token, &self.environment)?));
        self.expanded = Arc::new(with_variables.into_iter().filter_map(expand).collect());
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

/// A boolean in any of the spellings that the components' flag library takes.
#[must_use]
pub fn read_boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The kubelet replaces `$(NAME)` from the container's environment.
fn literal(flag: Flag, value: &str) -> Result<String, Unreadable> {
    if value.contains("$(") {
        return Err(Unreadable::Variable {
            flag: flag.name.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(value.to_owned())
}

/// The values that the container gives as text. A later entry replaces an earlier one of its name, also with an unknown
/// value.
pub(super) fn environment(container: &Value) -> Environment {
    let entries = container.get("env").and_then(Value::as_array);
    let mut known = Environment::new();
    for entry in entries.into_iter().flatten() {
        let Some(name) = entry.get("name").and_then(Value::as_str) else {
            continue;
        };
        match entry.get("value").and_then(Value::as_str) {
            // It may refer to other variables.
            Some(value) if !value.contains("$(") => known.insert(name.to_owned(), value.to_owned()),
            _ => known.remove(name),
        };
    }

    known
}

/// The token with its variables' values; none where one of them is not known. `$$(NAME)` is no variable, and not read.
fn expanded(token: &str, environment: &Environment) -> Option<String> {
    let mut text = String::with_capacity(token.len());
    let mut rest = token;
    while let Some((before, after)) = rest.split_once("$(") {
        let (name, behind) = after.split_once(')')?;
        if before.ends_with('$') {
            return None;
        }
        text.push_str(before);
        text.push_str(environment.get(name)?);
        rest = behind;
    }

    text.push_str(rest);

    Some(text)
}

/// Flags of the components that are known to have a value, so that a token after them is no flag.
const WITH_VALUE: [&str; 21] = [
    "advertise-address",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "client-ca-file",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "config",
    "controllers",
    "etcd-servers",
    "feature-gates",
    "hostname-override",
    "kubeconfig",
    "leader-migration-config",
    "node-ip",
    "root-ca-file",
    "service-account-private-key-file",
    "service-cluster-ip-range",
    "v",
];

/// An error for a token whose name is only known when the container starts, so that it may be any flag.
fn check_name(before: Option<&str>, token: &str) -> Result<(), Unreadable> {
    let name = token.split_once('=').map_or(token, |(name, _)| name);
    let is_value = before
        .and_then(|before| before.strip_prefix("--").or_else(|| before.strip_prefix('-')))
        .is_some_and(|before| WITH_VALUE.contains(&before.replace('_', "-").as_str()));
    if name.contains("$(") && !is_value {
        return Err(Unreadable::Hidden {
            token: token.to_owned(),
        });
    }

    Ok(())
}
