//! The types of a command line: flags, its two lists, how they write flags, and its edits.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::{MAX_TOKENS, Unreadable};
use super::read::Token;

/// Whether a flag takes a value of its own when written as two tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `--flag` alone means true; the next token is never its value.
    Boolean,
    /// `--flag VALUE` and `--flag=VALUE` are the same.
    Text,
}

/// A flag that rules are about. The name has no dashes in front and `-` between words; in a command line `_` counts
/// as `-`, as the components themselves read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
}

impl Flag {
    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text }
    }

    /// A flag that is true when it is there.
    #[must_use]
    pub const fn boolean(name: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Boolean,
        }
    }
}

/// Known values of a container's environment, by name.
pub(super) type Environment = HashMap<String, String>;

/// How a list writes flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `command` and `args` of a container: a program, then `--f=v` or `--f v`.
    Container,
    /// The same in JSON whose `command` is the program alone.
    Json,
    /// Only flags, `--f=v`.
    Dashed,
    /// Only flags, `f=v`; the distribution puts the dashes.
    Bare,
    /// Name and value apart. Kept as `name=value`, so that everything else is as with [`Style::Bare`].
    Pairs,
}

impl Style {
    /// Whether there is a program in front of the flags. Only then a flag and its value may be two tokens.
    pub const fn has_program(self) -> bool {
        matches!(self, Self::Container | Self::Json)
    }

    /// Whether every item is a flag, so that no item is another one's value and none ends the flags.
    pub const fn item_is_flag(self) -> bool {
        matches!(self, Self::Bare | Self::Pairs)
    }
}

/// One of a container's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum List {
    /// The entry point and what follows it.
    Command,
    /// Arguments of the entry point.
    Args,
}

impl List {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Args => "args",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    pub list: List,
    /// Index of the first changed token, counted when the edit was made.
    pub index: usize,
    /// The flag that it was about, without dashes.
    pub flag: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// The container did not have this list before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// The list is not the container's, but in the JSON that Kubermatic's prober starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
}

impl Edit {
    pub(super) fn new(list: List, index: usize, flag: Flag, was: Vec<String>, now: Vec<String>) -> Self {
        Self {
            list,
            index,
            flag: flag.name.to_owned(),
            was,
            now,
            created: false,
            json: false,
        }
    }
}

/// The command line of one container, or a provisioner's list of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    pub(super) style: Style,
    pub(super) command: Option<Vec<String>>,
    pub(super) args: Option<Vec<String>>,
    pub(super) edits: Vec<Edit>,
    /// Shared by copies, as the next one.
    pub(super) environment: Arc<Environment>,
    /// Tokens with `$(NAME)` whose values are known, as the component gets them.
    pub(super) expanded: Arc<HashMap<String, String>>,
}

impl CommandLine {
    pub(super) fn new(style: Style, command: Option<Vec<String>>, args: Option<Vec<String>>) -> Self {
        Self {
            style,
            command,
            args,
            edits: Vec::new(),
            environment: Arc::default(),
            expanded: Arc::default(),
        }
    }

    /// One of the two lists; none where the container does not have it.
    #[must_use]
    pub fn list(&self, list: List) -> Option<&[String]> {
        match list {
            List::Command => self.command.as_deref(),
            List::Args => self.args.as_deref(),
        }
    }

    /// The changes since the container was read, in order.
    #[must_use]
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    pub(super) fn list_mut(&mut self, list: List) -> &mut Option<Vec<String>> {
        match list {
            List::Command => &mut self.command,
            List::Args => &mut self.args,
        }
    }

    /// `command` and `args` as the one list that is started, without the image's entry point, as the object has it.
    pub(super) fn written_tokens(&self) -> Vec<&str> {
        let all = self.command.iter().chain(self.args.iter()).flatten();
        all.map(String::as_str).collect()
    }

    /// The same as the component gets it, as far as that is known; the positions are the same.
    pub(super) fn tokens(&self) -> Vec<&str> {
        let all = self.command.iter().chain(self.args.iter()).flatten();
        all.map(|token| self.read(token)).collect()
    }

    /// The list that holds the token at a position of [`Self::tokens`], and its index there.
    pub(super) fn place(&self, position: usize) -> (List, usize) {
        let in_command = self.command.as_ref().map_or(0, Vec::len);
        if position < in_command {
            (List::Command, position)
        } else {
            (List::Args, position - in_command)
        }
    }

    /// A token as the component gets it, as far as that is known.
    pub(super) fn read<'a>(&'a self, token: &'a str) -> &'a str {
        self.expanded.get(token).map_or(token, String::as_str)
    }

    /// A list of flags with dashes and without a program, as Kamaji's `extraArgs`. Flags are written `--flag=value`,
    /// as Kamaji splits each item at its first `=`. None where the object has no such list.
    ///
    /// # Errors
    /// When it is longer than [`MAX_TOKENS`].
    pub fn dashed(list: impl Into<Option<Vec<String>>>) -> Result<Self, Unreadable> {
        Self::of_list(Style::Dashed, list.into())
    }

    /// A list of flags without dashes, as RKE2's and K3s' `*-arg` and `extraArgs` of Cluster API's RKE2 provider:
    /// `cloud-provider=external`, `enable-leader-migration`. Both take items with `--` too; where a list has only such
    /// items, a new one is written like them. None where the object has no such list.
    ///
    /// # Errors
    /// When it is longer than [`MAX_TOKENS`].
    pub fn bare(list: impl Into<Option<Vec<String>>>) -> Result<Self, Unreadable> {
        Self::of_list(Style::Bare, list.into())
    }

    /// Names without dashes and their values, as kubeadm's `extraArgs`: a map, or a list of `{name, value}`. Every flag
    /// has a value, `true` for a boolean one. None where the object has neither.
    ///
    /// # Errors
    /// When a name is empty or has a `=`, or when there are more than [`MAX_TOKENS`].
    pub fn of_pairs(pairs: impl Into<Option<Vec<(String, String)>>>) -> Result<Self, Unreadable> {
        let joined = |(name, value): (String, String)| {
            if name.is_empty() || name.contains('=') {
                Err(Unreadable::NotAName { name })
            } else {
                Ok(format!("{name}={value}"))
            }
        };
        let pairs: Option<Vec<_>> = pairs.into();
        let list = pairs.map(|pairs| pairs.into_iter().map(joined).collect::<Result<_, _>>());

        Self::of_list(Style::Pairs, list.transpose()?)
    }

    fn of_list(style: Style, list: Option<Vec<String>>) -> Result<Self, Unreadable> {
        let tokens = list.as_ref().map_or(0, Vec::len);
        if tokens > MAX_TOKENS {
            return Err(Unreadable::TooLong { tokens });
        }
        Ok(Self::new(style, None, list))
    }

    /// The items of a list that is no container's; none where the object has none.
    #[must_use]
    pub fn items(&self) -> Option<&[String]> {
        self.args.as_deref()
    }

    /// Names and values of a list made by [`Self::of_pairs`], in order; none where the object has none.
    #[must_use]
    pub fn pairs(&self) -> Option<Vec<(&str, &str)>> {
        let items = self.args.as_ref()?.iter();
        Some(items.map(|item| item.split_once('=').unwrap_or((item, ""))).collect())
    }

    /// A new flag as the list writes its flags. `own` are the tokens that are flags already.
    pub(super) fn written(&self, flag: Flag, value: &str, own: &[&str]) -> Vec<String> {
        let dashes = match self.style {
            Style::Container | Style::Json | Style::Dashed => "--",
            Style::Pairs => "",
            Style::Bare if !own.is_empty() && own.iter().all(|item| item.starts_with("--")) => "--",
            Style::Bare => "",
        };
        let name = format!("{dashes}{}", flag.name);
        match flag.kind {
            // Kamaji drops an item without a value.
            Kind::Boolean if value == "true" && !matches!(self.style, Style::Dashed | Style::Pairs) => vec![name],
            Kind::Text if self.style.has_program() && writes_two_tokens(own) => vec![name, value.to_owned()],
            _ => vec![format!("{name}={value}")],
        }
    }
}

/// Whether the list writes flags and values as two tokens and none as `--f=v`.
fn writes_two_tokens(tokens: &[&str]) -> bool {
    let parse = |token: &str| Token::parse(Style::Container, token).map(|token| token.value.is_some());
    let joined = tokens.iter().any(|token| parse(token) == Some(true));
    let pairs = tokens
        .windows(2)
        .any(|pair| matches!(pair, [flag, value] if parse(flag).is_some() && !value.starts_with('-')));
    pairs && !joined
}
