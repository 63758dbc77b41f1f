//! Objects that are not in the form of their migration's phase.

/// Findings of one migration that get an Event; further ones are only counted.
pub(super) const MAX_NAMED: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deviation {
    /// It would be changed if it were written now.
    Missed,
    /// It cannot be changed; see the reasons.
    Refused,
}

impl Deviation {
    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Refused => "refused",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub deviation: Deviation,
    pub api_version: String,
    pub kind: &'static str,
    /// None for cluster-scoped objects.
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// Each change that is missing, or the reason for the refusal.
    pub reasons: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Summary {
    pub checked: usize,
    /// Objects that are not in form, at most [`MAX_NAMED`] of them.
    pub findings: Vec<Finding>,
    pub missed: usize,
    /// Kinds that could not be read, with the reason.
    pub unread: Vec<String>,
}
