//! A container's argument list: where it really is, what it says, and how to change it so that it can be changed back.
//!
//! A container starts `command` followed by `args` (without `command`, the image's own entry point followed by `args`).
//! The flags of a component may begin in either list, and after a wrapper (`/go-runner`, `tini --`, `env K=V`,
//! `hyperkube`), or in a JSON text (`http-prober -command`). [`CommandLine`] reads the two lists of one container, finds where the component's own flags begin, and
//! changes them token by token, keeping style and positions. Each change is an [`Edit`] that can be undone.
//!
//! Provisioners keep the same flags in lists without a program, with dashes, without, or as name and value apart:
//! [`CommandLine::dashed`], [`CommandLine::bare`], [`CommandLine::of_pairs`]. The editor is the same for all.
//!
//! What cannot be read with certainty is [`Unreadable`] and never changed: a shell script, a value that the kubelet fills
//! in later from elsewhere (`$(VAR)`).

use std::collections::BTreeMap;

use serde_json::Value;

mod edit;
mod flags;
mod locate;
mod read;
mod script;
mod style;
pub mod undo;
mod variables;
mod wrapped;

pub use self::{
    read::read_boolean,
    undo::{Edit, List},
};
use self::{style::Style, variables::Environment};

/// Longest command line that is read, in tokens. Real ones have fewer than 200; the limit bounds the work per review.
pub const MAX_TOKENS: usize = 4096;

/// Why a command line is not read, and so not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// `sh -c SCRIPT`: flags may come from anywhere in the script.
    #[error("its flags are inside a shell script, which is never rewritten; change the script by hand")]
    ShellScript,
    /// `tini --` and the like, with no program behind.
    #[error("{starter:?} only starts other programs, and none follows; write the component's program behind it")]
    NoProgram {
        /// As written.
        starter: String,
    },
    /// Kubermatic's prober starts the real command from a JSON text, and this one is not as it should be.
    #[error("its command is wrapped in JSON (http-prober -command) that {problem}")]
    WrappedJson {
        /// What is wrong with the text, and what to do.
        problem: String,
    },
    /// The kubelet expands the value when it starts the container.
    #[error(
        "the value of --{flag} is {value:?}, which is only known when the container starts; write the value itself"
    )]
    Variable {
        /// The flag, without dashes.
        flag: String,
        /// The value as written.
        value: String,
    },
    /// The kubelet expands a token that may be any flag.
    #[error("{token:?} may be any flag, which is only known when the container starts; write the flag itself")]
    Hidden {
        /// As written.
        token: String,
    },
    /// A file that is not part of the object may name any flag.
    #[error(
        "look at its running process (ps -ef on its node): --{flag} names a file with flags that cannot be read here; write --cloud-provider itself"
    )]
    ConfigFile {
        /// The flag that names the file, without dashes.
        flag: &'static str,
    },
    /// A flag without its value, or followed by what looks like another flag.
    #[error("--{flag} needs a value and is followed by none; correct the command line")]
    NoValue {
        /// The flag, without dashes.
        flag: String,
    },
    /// RKE2 and K3s put the value before their own, so which of them counts is not in the list.
    #[error("{item:?} goes before the distribution's own value of --{flag}; write {flag}=VALUE without the \"-\"")]
    Prepended {
        /// The flag, without dashes.
        flag: String,
        /// The item as written.
        item: String,
    },
    /// A name and value apart, with a name that no flag can have.
    #[error("{name:?} is no name of a flag; correct the object")]
    NotAName {
        /// As written.
        name: String,
    },
    /// A boolean flag with a value that is no boolean.
    #[error("--{flag}={value} is no boolean; write true or false")]
    NotABoolean {
        /// The flag, without dashes.
        flag: String,
        /// The value as written.
        value: String,
    },
    /// Far beyond any real command line.
    #[error("it has {tokens} arguments, more than the {MAX_TOKENS} that are read; shorten it")]
    TooLong {
        /// In `command` and `args` together.
        tokens: usize,
    },
    /// Not a list of strings.
    #[error("{list} is not a list of strings; correct the object")]
    NotStrings {
        /// `command` or `args`.
        list: &'static str,
    },
}

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
    /// Such as `cloud-provider`.
    pub name: &'static str,
    /// Whether it takes a value.
    pub kind: Kind,
}

impl Flag {
    /// A flag with a value.
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

/// The command line of one container, or a provisioner's list of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    style: Style,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    edits: Vec<Edit>,
    environment: Environment,
    /// Tokens with `$(NAME)` whose values are known, as the component gets them.
    expanded: BTreeMap<String, String>,
}

impl CommandLine {
    /// Reads `command` and `args` of a container.
    ///
    /// # Errors
    /// When either is something else than a list of strings (the API server refuses such an object anyway), or when they
    /// are longer than [`MAX_TOKENS`].
    pub fn of_container(container: &Value) -> Result<Self, Unreadable> {
        let mut line = Self::without_variables(container)?;
        line.environment = variables::environment(container);
        line.expand();
        Ok(line)
    }

    /// As [`Self::of_container`], for looking only, not for undoing: the environment, of which some containers have a thousand
    /// entries, is looked at only where a token may refer to it.
    ///
    /// # Errors
    /// As [`Self::of_container`].
    pub(crate) fn to_read(container: &Value) -> Result<Self, Unreadable> {
        let line = Self::without_variables(container)?;
        // A backslash may hide the dollar sign in JSON.
        if line.tokens().iter().any(|token| token.contains(['$', '\\'])) {
            return Self::of_container(container);
        }
        Ok(line)
    }

    fn without_variables(container: &Value) -> Result<Self, Unreadable> {
        let length = |list: &str| container.get(list).and_then(Value::as_array).map_or(0, Vec::len);
        let tokens = length("command") + length("args");
        if tokens > MAX_TOKENS {
            return Err(Unreadable::TooLong { tokens });
        }
        let (command, args) = (strings(container, "command")?, strings(container, "args")?);
        Ok(Self::new(Style::Container, command, args))
    }

    const fn new(style: Style, command: Option<Vec<String>>, args: Option<Vec<String>>) -> Self {
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

    /// What was changed since the container was read, in order.
    #[must_use]
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    fn list_mut(&mut self, list: List) -> &mut Option<Vec<String>> {
        match list {
            List::Command => &mut self.command,
            List::Args => &mut self.args,
        }
    }

    /// `command` and `args` as the one list that is started, without the image's entry point, as the object has it.
    fn written_tokens(&self) -> Vec<&str> {
        let all = self.command.iter().chain(self.args.iter()).flatten();
        all.map(String::as_str).collect()
    }

    /// The same as the component gets it, as far as that is known; the positions are the same.
    fn tokens(&self) -> Vec<&str> {
        let all = self.command.iter().chain(self.args.iter()).flatten();
        all.map(|token| self.read(token)).collect()
    }

    /// The list that holds the token at a position of [`Self::tokens`], and its index there.
    fn place(&self, position: usize) -> (List, usize) {
        let in_command = self.command.as_ref().map_or(0, Vec::len);
        if position < in_command {
            (List::Command, position)
        } else {
            (List::Args, position - in_command)
        }
    }
}

fn strings(container: &Value, list: &'static str) -> Result<Option<Vec<String>>, Unreadable> {
    match container.get(list) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .map(Some)
                .ok_or(Unreadable::NotStrings { list })
        }
        Some(_) => Err(Unreadable::NotStrings { list }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::CommandLine;

    #[test]
    fn a_line_that_is_only_looked_at_is_read_with_its_variables() {
        let program = |command: Value| {
            let container = json!({"command": command, "env": [{"name": "WHICH", "value": "controller"}]});
            let looked_at = CommandLine::to_read(&container).unwrap();
            let whole = CommandLine::of_container(&container).unwrap();
            assert_eq!(looked_at.tokens(), whole.tokens());
            let program = looked_at.locate().unwrap().program;
            assert_eq!(program, whole.locate().unwrap().program);
            program.unwrap()
        };
        assert_eq!(
            program(json!(["/bin/kube-$(WHICH)-manager", "--v=2"])),
            "kube-controller-manager"
        );
        let wrapped = r#"{"command":"/bin/kube-$(WHICH)-manager"}"#;
        assert_eq!(
            program(json!(["http-prober", "-command", wrapped])),
            "kube-controller-manager"
        );
        assert_eq!(program(json!(["kube-apiserver"])), "kube-apiserver");
    }
}
