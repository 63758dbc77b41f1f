//! The findings of a check.

/// The causes that a check found.
pub type Found = Vec<Detail>;

/// A cause, with a fix of its own where that of the rule is too general.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub text: String,
    pub fix: Option<String>,
}

impl Detail {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            fix: None,
        }
    }

    pub fn with_fix(text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            fix: Some(fix.into()),
        }
    }
}
