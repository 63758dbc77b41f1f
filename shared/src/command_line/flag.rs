//! A flag by name and kind.

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
