//! A container's argument list: finds the component's flags, reads them, and changes them so that each change can be
//! undone.
//!
//! A container starts `command` followed by `args` (without `command`, the image's own entry point followed by `args`).
//! The flags of a component may begin in either list, and after a wrapper (`/go-runner`, `tini --`, `env K=V`,
//! `hyperkube`), or in a JSON text (`http-prober -command`). [`CommandLine`] reads the two lists of one container,
//! finds where the component's own flags begin, and changes them token by token, keeping style and positions. Each
//! change is an [`Edit`] that can be undone.
//!
//! Provisioners keep the same flags in lists without a program, with dashes, without, or as name and value apart:
//! [`CommandLine::dashed`], [`CommandLine::bare`], [`CommandLine::of_pairs`]. The editor is the same for all.
//!
//! A list that cannot be read with certainty is [`Unreadable`] and never changed: a shell script, a value that the
//! kubelet fills in later from another source (`$(VAR)`).

use std::sync::Arc;

use serde_json::Value;

mod edit;
mod error;
mod line;
mod locate;
mod read;
mod script;
mod wrapped;

use self::line::Style;
pub use self::{
    error::{MAX_TOKENS, Unreadable},
    line::{CommandLine, Edit, Flag, Kind, List},
    read::read_boolean,
};
use crate::work;

/// Steps to copy a token, and to copy an environment variable with its name.
const STEPS_PER_COPIED_TOKEN: usize = 4;
const STEPS_PER_VARIABLE: usize = 20;

impl CommandLine {
    /// Reads `command` and `args` of a container.
    ///
    /// # Errors
    /// When either is not a list of strings (the API server refuses such an object anyway), or when they
    /// are longer than [`MAX_TOKENS`].
    pub fn of_container(container: &Value) -> Result<Self, Unreadable> {
        let mut line = Self::without_variables(container)?;
        let variables = container.get("env").and_then(Value::as_array).map_or(0, Vec::len);
        work::take(STEPS_PER_VARIABLE * variables)?;
        line.environment = Arc::new(read::environment(container));
        line.expand();
        Ok(line)
    }

    /// As [`Self::of_container`], to read only: the environment, of which some containers have a thousand entries, is
    /// parsed only if a token may refer to it.
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
        work::take(STEPS_PER_COPIED_TOKEN * tokens)?;
        let (command, args) = (strings(container, "command")?, strings(container, "args")?);
        Ok(Self::new(Style::Container, command, args))
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
