//! Reads the values of flags.

use super::error::Unreadable;
use super::flag::Flag;
use super::line::CommandLine;

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
