//! The types of a command line: its two lists, how they write flags, and its edits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::flag::Flag;

/// Known values of a container's environment, by name.
pub(super) type Environment = BTreeMap<String, String>;

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
    /// The field's name in a container.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Args => "args",
        }
    }
}

/// One change of one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    pub list: List,
    /// Index of the first changed token, counted when the edit was made.
    pub index: usize,
    /// The flag that it was about, without dashes.
    pub flag: String,
    /// The tokens that were there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// The tokens that replaced them.
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
    pub(super) fn replace(list: List, index: usize, flag: Flag, was: Vec<String>, now: Vec<String>) -> Self {
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

    pub(super) fn remove(list: List, index: usize, flag: Flag, was: &str) -> Self {
        Self {
            list,
            index,
            flag: flag.name.to_owned(),
            was: vec![was.to_owned()],
            now: Vec::new(),
            created: false,
            json: false,
        }
    }

    pub(super) fn add(list: List, index: usize, flag: Flag, now: Vec<String>, created: bool) -> Self {
        Self {
            list,
            index,
            flag: flag.name.to_owned(),
            was: Vec::new(),
            now,
            created,
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
    pub(super) environment: Environment,
    /// Tokens with `$(NAME)` whose values are known, as the component gets them.
    pub(super) expanded: BTreeMap<String, String>,
}

impl CommandLine {
    pub(super) const fn new(style: Style, command: Option<Vec<String>>, args: Option<Vec<String>>) -> Self {
        Self {
            style,
            command,
            args,
            edits: Vec::new(),
            environment: BTreeMap::new(),
            expanded: BTreeMap::new(),
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
}
