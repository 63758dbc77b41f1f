//! Objects that are not in the form of their migration's phase.

/// Findings of one migration that are named; the others are only counted.
pub(super) const MAX_NAMED: usize = 50;

/// Why an object is not in form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deviation {
    /// It would be changed if it were written now.
    Missed,
    /// Something stands in the way; the reasons say what.
    Refused,
}

impl Deviation {
    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Refused => "refused",
        }
    }
}

/// An object that is not in form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Why.
    pub deviation: Deviation,
    /// The object's `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; none for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What would be changed, or what stands in the way.
    pub reasons: Vec<String>,
}

/// What came of one migration's pass.
#[derive(Debug, Default)]
pub struct Summary {
    /// Number of objects checked.
    pub checked: usize,
    /// Objects that are not in form, at most [`MAX_NAMED`] of them.
    pub findings: Vec<Finding>,
    /// All of them.
    pub missed: usize,
    /// Kinds that could not be read, with the reason.
    pub unread: Vec<String>,
}
