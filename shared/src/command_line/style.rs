//! The shapes of argument lists.

use super::error::{MAX_TOKENS, Unreadable};
use super::flag::{Flag, Kind};
use super::line::{CommandLine, Style};
use super::tokens::Token;

impl CommandLine {
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
        let split = |item: &'_ String| item.find('=').unwrap_or(item.len());
        let items = self.args.as_ref()?.iter();
        let pairs = items.map(|item| {
            let (name, value) = item.split_at(split(item));
            (name, value.strip_prefix('=').unwrap_or_default())
        });
        Some(pairs.collect())
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
