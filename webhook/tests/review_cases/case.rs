//! One review, and what must come of it.

use outrigger_shared::migration::Phase;

/// The phase of every migration in the file, and whether it is Prepared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    InTree,
    Prepare,
    /// Migrate before the evidence is there.
    Early,
    Migrate,
    Complete,
}

impl At {
    pub fn phase(self) -> Phase {
        match self {
            Self::InTree => Phase::InTree,
            Self::Prepare => Phase::Prepare,
            Self::Early | Self::Migrate => Phase::Migrate,
            Self::Complete => Phase::Complete,
        }
    }
}

/// A part of what must come of a review.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    NotOurs,
    Unchanged,
    Changed,
    Audited,
    Refused,
    /// A warning has this text.
    Warns(&'static str),
    /// No warning has it; the empty text stands for any warning.
    Silent(&'static str),
    /// A reason has this text.
    Because(&'static str),
    /// A line `/pointer: value` of the object, as it is stored then, has this text.
    Has(&'static str),
    /// None has it.
    Lacks(&'static str),
}

/// One review.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The file; `#1` names its second object.
    pub object: &'static str,
    pub migrations: &'static str,
    pub at: At,
    /// The file of the object that is stored.
    pub over: Option<&'static str>,
    /// The object gets the label that the migrations select by.
    pub labelled: bool,
    pub wants: &'static [Want],
}

pub(super) const fn row(object: &'static str, migrations: &'static str, at: At, wants: &'static [Want]) -> Row {
    Row {
        object,
        migrations,
        at,
        over: None,
        labelled: false,
        wants,
    }
}

pub(super) const fn update(
    object: &'static str,
    over: &'static str,
    migrations: &'static str,
    at: At,
    wants: &'static [Want],
) -> Row {
    Row {
        over: Some(over),
        ..row(object, migrations, at, wants)
    }
}

impl Row {
    pub const fn labelled(self) -> Self {
        Self { labelled: true, ..self }
    }
}
